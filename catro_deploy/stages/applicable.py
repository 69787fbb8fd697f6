"""Which stages apply to given settings: others do not run, and their files are not read."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import AUTO, TARGETS_OWN, Settings
from catro_deploy.stages.table import BUILD, QUANTIZE, RUNTIMES, SEARCH, VARIANTS, Stage
from catro_deploy.targets import load_target
from catro_deploy.transports import device_of
from catro_deploy.transports.reach import reachable

__all__ = ["applicable"]


def applicable(
    table: Sequence[Stage], names: Sequence[str], settings: Settings, run: RunFolder
) -> tuple[Sequence[Stage], list[str]]:
    """``table`` without the stages that do not apply, and those of ``names`` that need an unreachable target."""
    target = load_target(settings.prune.target)
    unneeded = {
        SEARCH: settings.prune.budget != AUTO,
        VARIANTS: not settings.search.enabled,
        BUILD: target.runtime != "tensorrt" and tuple(names) != (BUILD,),
        RUNTIMES: not settings.bench.runtimes,
        QUANTIZE: settings.quantize.precision == TARGETS_OWN,
    }
    table = _left_out(table, [stage for stage in table if unneeded.get(stage.name)])
    if reachable(target, device_of(settings.prune.device, run)):
        return table, []
    out_of_reach = [stage for stage in table if stage.on_device]
    skipped = [stage.name for stage in out_of_reach if stage.name in names]
    return _left_out(table, out_of_reach), skipped


def _left_out(table: Sequence[Stage], stages: Sequence[Stage]) -> Sequence[Stage]:
    """``table`` without ``stages``; those that remain do not read what these write."""
    return [_without(stage, stages) for stage in table if stage not in stages]


def _without(stage: Stage, left_out: Sequence[Stage]) -> Stage:
    def reads(run: RunFolder) -> tuple[Path, ...]:
        unwritten = {path for other in left_out for path in other.writes(run)}
        return tuple(path for path in stage.reads(run) if path not in unwritten)

    return replace(stage, reads=reads)
