"""Latency profiles: how long each layer of a network takes on a device, at the widths that pruning may give it."""

from catro_deploy.profiling.measuring import find_profile, measure_profile
from catro_deploy.profiling.store import LatencyProfile, load_profile, profiles_of, save_profile
from catro_deploy.profiling.use import Use, use_of

__all__ = [
    "LatencyProfile",
    "Use",
    "find_profile",
    "load_profile",
    "measure_profile",
    "profiles_of",
    "save_profile",
    "use_of",
]
