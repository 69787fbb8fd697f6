"""A latency profile on the screen and as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from catro_deploy.report.wording import count, percent
from catro_deploy.units import counted

if TYPE_CHECKING:
    from catro_deploy.latency.profile import LatencyProfile

__all__ = ["profile_json", "show_profile", "summary"]


def show_profile(profile: "LatencyProfile") -> Sequence[RenderableType]:
    """The staircase of every group, and the errors of the cost model."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("channels of", "period", "efficient widths"):
        table.add_column(column)
    for name, stairs in profile.staircases.items():
        period = str(stairs.period) if stairs.period > 1 else ""
        table.add_row(name, period, ", ".join(map(str, stairs.candidates)))
    return [table, *summary(profile)]


def summary(profile: "LatencyProfile") -> list[str]:
    """What was measured, when and on what, and the errors of the cost model."""
    device = profile.device
    where = device.get("cpu_model") or device.get("device") or "unknown device"
    fingerprint = profile.fingerprint
    errors = profile.errors
    return [
        f"Measured {profile.measured} on {where}, {device['runtime']}, {fingerprint['precision']}, "
        f"{counted(fingerprint['threads'], 'thread')}, batch {fingerprint['batch']}: "
        f"{counted(profile.networks, 'network')} in "
        f"{count(profile.seconds)} s, whose rounds differ by {percent(profile.disagreement)} (median).",
        f"On {counted(errors.networks, 'network')} held out: {percent(errors.within_5)} within 5%, "
        f"{percent(errors.within_10)} within 10%, RMSPE {percent(errors.rmspe)}, Spearman {errors.spearman:.3f}. "
        f"The original took {profile.original_us / 1000:.3f} ms.",
    ]


def profile_json(profile: "LatencyProfile", folder: Path | None = None) -> dict[str, Any]:
    """A profile without its cells."""
    from pydantic import TypeAdapter

    from catro_deploy.latency.profile import LatencyProfile

    content: dict[str, Any] = TypeAdapter(LatencyProfile).dump_python(profile, mode="json", exclude={"cells"})
    return content | ({"folder": str(folder)} if folder else {})
