"""The latency of given widths on a target: measured if it can be reached, otherwise estimated from its figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from catro_deploy.calibration import ProfileProtocol
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.latency.profile import LatencyProfile, find_profile, measure_profile
from catro_deploy.latency.roofline import RooflineCost
from catro_deploy.latency.table import TableCost
from catro_deploy.latency.widths import efficient_widths, period, sweep_widths
from catro_deploy.progress import Progress
from catro_deploy.records import CostErrors, Group, Layer, Staircase
from catro_deploy.targets import Target
from catro_deploy.transports.execution import Use
from catro_deploy.transports.reach import require_latency
from catro_deploy.units import counted

__all__ = ["Pricing", "estimated_pricing", "measured_pricing", "profile_of"]

# A profile whose rounds differ by more than this share is too noisy.
NOISY = 0.1
CANDIDATES = 13
# A profile can be reused if the protocol asks for no more of any of these.
THOROUGHNESS = ("candidates", "squares", "rounds", "max_runs")


@dataclass(frozen=True)
class Pricing:
    """A cost model in microseconds, the staircases of the groups, and their source.

    ``original_us`` is the unpruned network's latency: measured along with the other networks, else predicted.
    """

    cost: LayerCost
    original_us: float
    staircases: Mapping[str, Staircase]
    how: Literal["measured", "estimate"]
    source: str
    errors: CostErrors | None = None
    warnings: tuple[str, ...] = ()
    estimated: Callable[[Mapping[str, int]], list[str]] = field(default=lambda widths: [])


def profile_of(
    model: nn.Module,
    network: Network,
    use: Use,
    protocol: ProfileProtocol,
    progress: Progress,
    *,
    opset: int,
    force: bool = False,
) -> LatencyProfile:
    """The profile of ``model`` (eval mode, CPU) for ``use`` on this device; measured now if none is as thorough.

    ``network`` is the trace of ``model``, without modules to ignore: a profile covers all groups.

    Raises:
        ProfileError: the existing profile is damaged.
        ModelError: the network cannot be exported, or its shapes at other widths are not known.
    """
    shape = network.input_shape
    found = None if force else find_profile(model, shape, use, network=network)
    if found is not None and _is_as_thorough(found, protocol):
        progress.note(f"latency profile of {found.measured}, {counted(found.networks, 'network')}: used again")
        return found
    return measure_profile(model, shape, use, protocol, progress, opset=opset, network=network)


def _is_as_thorough(found: LatencyProfile, protocol: ProfileProtocol) -> bool:
    return all(found.protocol.get(key, 0) >= getattr(protocol, key) for key in THOROUGHNESS)


def measured_pricing(network: Network, groups: Sequence[Group], profile: LatencyProfile) -> Pricing:
    """Prices of ``groups`` of ``network``, from a profile of it."""
    cost = TableCost(network.layers, groups, profile.shapes, profile.cells, profile.fit, profile.staircases)
    warnings = []
    if profile.disagreement > NOISY:
        warnings.append(
            f"The latency profile was measured on a noisy machine: its rounds differ by {profile.disagreement:.0%}. "
            "Measure it again on a quiet one: catro-deploy profile --force"
        )
    return Pricing(
        cost=cost,
        original_us=profile.original_us,
        staircases=profile.staircases,
        how="measured",
        source=f"latency profile of {profile.measured}: {counted(profile.networks, 'network')} in "
        f"{profile.fingerprint['precision']} on {_device(profile)}",
        errors=profile.errors,
        warnings=tuple(warnings),
        estimated=cost.estimated,
    )


def estimated_pricing(
    network: Network,
    groups: Sequence[Group],
    target: Target,
    use: Use,
    d_min: int,
    *,
    original: Sequence[Layer] | None = None,
    measured: bool = False,
) -> Pricing:
    """Prices from the roofline with ``target``'s figures; ``measured`` if whole networks will also be timed.

    The first producer of each group keeps at least ``d_min`` channels. ``original`` are the layers of the network that
    budgets are shares of; None: those of ``network``.

    Raises:
        TargetError: the target has no figures to estimate from.
    """
    if target.gpu is None:
        require_latency(target)
    assert target.gpu is not None, "latency that can be measured must not be estimated"
    cost = RooflineCost(network.layers, groups, target.gpu, use.precision, use.batch)
    full = {group.name: group.width for group in groups}
    staircases = {}
    for group in groups:
        widths = sweep_widths(group.width, group.narrowest(d_min))
        times = [sum(_touched(cost, group.name, {**full, group.name: width})) for width in widths]
        candidates = efficient_widths(widths, times, CANDIDATES)
        staircases[group.name] = Staircase(
            tuple(zip(widths, times, strict=True)), candidates, period(widths, candidates)
        )
    return Pricing(
        cost=cost,
        original_us=RooflineCost(original or network.layers, groups, target.gpu, use.own_precision, use.batch).predict(
            full
        ),
        staircases=staircases,
        how="estimate",
        source=f"roofline of {target.title}",
        warnings=(
            f"Latency on {target.name} is an estimate from the device's figures (see docs/roofline.md); "
            + ("only whole networks were measured on it." if measured else "nothing was measured on it."),
        ),
    )


def _touched(cost: LayerCost, group: str, widths: Mapping[str, int]) -> list[float]:
    by_layer = cost.by_layer(widths)
    return [by_layer[layer] for layer in cost.touched(group)]


def _device(profile: LatencyProfile) -> str:
    device = profile.device
    return f"{device.get('cpu_model') or device.get('device') or 'this device'}, {device['runtime']}"
