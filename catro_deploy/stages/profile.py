"""``profile``: time the layers of the network on the target, at the widths that pruning may give it."""

from catro_deploy.calibration import load_profile_protocol
from catro_deploy.errors import TargetError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.latency.pricing import profile_of
from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.progress import Progress
from catro_deploy.pruning.cutting import at_input_size
from catro_deploy.settings import Settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.sizes import announce_size
from catro_deploy.targets import load_target
from catro_deploy.transports.execution import use_of
from catro_deploy.transports.reach import profilable, require_reachable

__all__ = ["profile"]


def profile(settings: Settings, progress: Progress, *, force: bool = False) -> LatencyProfile:
    """Return the latency profile of the checkpoint's network on the target, measured now if there is none.

    Raises:
        TargetError: the target cannot be measured from here, or not layer by layer.
        UsageError: settings, data or checkpoint do not match.
        ModelError: the network's shapes at other widths are not known.
    """
    target = load_target(settings.prune.target)
    require_reachable(target, settings.prune.device, "profile")
    if not profilable(target):
        raise TargetError(
            f"Layers are not timed on {target.name} in this version: {target.runtime} fuses them.",
            "prune estimates their times from the device's figures, and measures whole networks there.",
        )
    protocol = load_profile_protocol(settings.profile.protocol)
    original = at_input_size(open_original(settings), settings.prune.input_size)
    announce_size(original.dataset, original.input_shape[1:], progress)
    return profile_of(
        original.model,
        trace(original.model, original.input_shape),
        use_of(target, settings),
        protocol,
        progress,
        opset=settings.export.opset,
        force=force,
    )
