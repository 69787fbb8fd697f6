"""catro-deploy: prune an image classifier for the device that must run it, and measure the gain on that device.

``catro_deploy.prune(model, loader)`` prunes a module in memory; ``catro_deploy.load(folder)`` rebuilds a pruned
network.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catro_deploy.api import PrunedModel, prune
    from catro_deploy.networks import load

__all__ = ["PrunedModel", "__version__", "load", "prune"]

__version__ = "0.1.0"

# From 1.32 on, ONNX Runtime collects telemetry unless this is set before it is first imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOMES = {"PrunedModel": "catro_deploy.api", "load": "catro_deploy.networks", "prune": "catro_deploy.api"}


def __getattr__(name: str) -> object:
    # torch takes seconds to import; --help and target queries must not wait for it.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
