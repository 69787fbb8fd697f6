"""catro-deploy: prune an image classifier for the device that must run it, and prove on that device what it gained.

``catro_deploy.load(run_folder)`` builds a pruned network again.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catro_deploy.networks import load

__all__ = ["__version__", "load"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # torch takes seconds to import; those who only ask for --help or for a target shall not wait for it.
    if name == "load":
        from catro_deploy.networks import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
