"""Latency profiles: how long each layer of a network takes on a device, at the widths that pruning may give it."""

from catro_deploy.latency.profile.measuring import find_profile, measure_profile
from catro_deploy.latency.profile.store import LatencyProfile, load_profile, profiles_of, save_profile

__all__ = [
    "LatencyProfile",
    "find_profile",
    "load_profile",
    "measure_profile",
    "profiles_of",
    "save_profile",
]
