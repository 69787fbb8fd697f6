"""The targets that one network is made for: the first, and further ones on which it must meet the same budgets.

Each is a side: the settings of the run, with the target, the device and the number format of that side filled in, so
that everything that works on one target works on each.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from catro_deploy.agent.jobs import FactsJob
from catro_deploy.errors import SettingsError, TargetError
from catro_deploy.settings import TARGETS_OWN, Settings
from catro_deploy.targets import Target, load_target
from catro_deploy.transports import is_carried, run_job
from catro_deploy.transports.reach import no_power, reachable, require_reachable
from catro_deploy.transports.registry import HERE, find_device, load_devices

__all__ = ["Side", "known_target", "require_power", "require_sides", "sides_of", "takes_ir"]

# NAME, NAME:PRECISION, NAME@DEVICE or NAME:PRECISION@DEVICE; a name may be a path.
ENTRY = re.compile(r"(?P<target>[^@]+?)(?::(?P<precision>fp32|fp16|int8))?(?:@(?P<device>[^@]+))?")


@dataclass(frozen=True)
class Side:
    """One target, ``name`` as the user wrote it, with the ``settings`` of the run adapted to it."""

    name: str
    target: Target
    settings: Settings

    @property
    def device(self) -> str:
        """The name of one of the user's devices, or HERE."""
        return self.settings.prune.device


def known_target(name: str) -> Target:
    """The target ``name``, as ``load_target``.

    Raises:
        TargetError: there is none; if it names one of the user's devices, the hint says how to measure there.
    """
    try:
        return load_target(name)
    except TargetError:
        device = load_devices().get(name.rpartition("@")[2])
        if device is None:
            raise
        raise TargetError(
            f"There is no target {name!r}, but you have a device {device.name!r}.",
            f"The first target is measured on it by --device {device.name}, a further one if it is written "
            f"--target {device.target}@{device.name}",
        ) from None


def sides_of(settings: Settings) -> list[Side]:
    """All targets of ``settings``, the first one first.

    Raises:
        SettingsError: an entry cannot be read, or names a precision that the run does not produce, or is given twice.
        TargetError: a target or a device is unknown, or they do not match.
    """
    pruning = settings.prune
    sides = [Side(pruning.target, known_target(pruning.target), settings)]
    sides += [_side(entry, settings) for entry in pruning.also]
    names = [side.name for side in sides]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SettingsError(
            f"The target {twice} is given twice.",
            "Tell them apart by number format or device: --target x86-cpu --target x86-cpu:fp32, --target arm-cpu@pi",
        )
    return sides


def takes_ir(settings: Settings) -> bool:
    """Whether a target of ``settings`` takes OpenVINO's IR.

    Raises:
        As ``sides_of``.
    """
    return any(side.target.takes_ir for side in sides_of(settings))


def require_sides(settings: Settings) -> None:
    """Check that budgets can be measured on every target, if there are several.

    Raises:
        As ``sides_of``, and TargetError: one cannot be reached.
    """
    sides = sides_of(settings)
    for side in sides if len(sides) > 1 else ():
        require_reachable(side.target, side.device, "One network for several targets, which is measured on each,")


def require_power(settings: Settings) -> None:
    """Check that every device reports its power, if energy is limited.

    Raises:
        As ``sides_of``, and TargetError: a device does not report it.
        DeviceError, RuntimeMissingError, FaultError: a device cannot be used.
    """
    for side in sides_of(settings) if settings.prune.max_energy is not None else ():
        if not reachable(side.target, side.device) or is_carried(side.device):
            continue
        if not run_job(side.device, FactsJob(side.target.runtime), Path(), ()).reports_power:
            raise no_power(side.name)


def _side(entry: str, settings: Settings) -> Side:
    match = ENTRY.fullmatch(entry)
    if match is None:
        raise SettingsError(
            f"The target {entry!r} cannot be read.", "Write NAME, NAME:fp32, NAME@DEVICE or NAME:fp32@DEVICE."
        )
    target = known_target(match["target"])
    precision = _precision(entry, match["precision"], target, settings)
    changed = {
        "prune": settings.prune.model_copy(
            update={"target": match["target"], "device": _device(match["device"], target), "also": []}
        ),
        "quantize": settings.quantize.model_copy(update={"precision": precision}),
    }
    return Side(entry, target, settings.model_copy(update=changed))


def _precision(entry: str, asked: str | None, target: Target, settings: Settings) -> str:
    """The number format of a further target: the run's, the target's own, or one that the run produces anyway."""
    if asked is None:
        return settings.quantize.precision
    if asked == target.precision:
        return TARGETS_OWN
    if asked != settings.quantize.precision:
        raise SettingsError(
            f"The target {entry} runs in {asked}, but the run does not produce such a file.",
            f"Request it, and name the targets that run in their own precision: --precision {asked} "
            f"--target {target.name} --target {target.name}:{target.precision}",
        )
    return asked


def _device(asked: str | None, target: Target) -> str:
    """The named device, or the only device of a target that is not this machine."""
    if asked is None:
        fitting = [device.name for device in load_devices().values() if device.target_name == target.name]
        return HERE if reachable(target) or len(fitting) != 1 else fitting[0]
    if find_device(asked).target_name != target.name:
        raise TargetError(
            f"The device {asked} belongs to target {find_device(asked).target}, but the target is {target.name}.",
            f"Write {find_device(asked).target}@{asked}.",
        )
    return asked
