"""Which results of a run folder a command is about to replace, and a new folder that keeps them."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from catro_deploy.files import write_text
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings, settings_text
from catro_deploy.stages.applicable import applicable
from catro_deploy.stages.decided import as_decided
from catro_deploy.stages.table import Stage
from catro_deploy.toml import parse_toml, read_toml, toml_differences
from catro_deploy.units import counted

__all__ = ["Replacement", "are_done", "replacement", "sibling_folder"]

SHOWN_CHANGES = 8
# A command stores all its settings, also those of stages that it does not run.
OTHER_CAUSES = "the model, the images or the device changed, or an earlier command changed their settings"


@dataclass(frozen=True)
class Replacement:
    """Stages whose results are replaced, those whose results are then out of date, and the settings that changed.

    ``changes`` are lines such as ``finetune.epochs: 40 -> 10``.
    """

    replaced: tuple[Stage, ...]
    outdated: tuple[Stage, ...]
    changes: tuple[str, ...]

    def lines(self, run: RunFolder, *, force: bool) -> Iterator[str]:
        """The lines to show before the first result in ``run`` is replaced."""
        written = [path for stage in self.replaced for path in stage.writes(run) if path.is_file()]
        files = [path.relative_to(run.path).as_posix() for path in written]
        yield f"replacing earlier results in {run.path}: {', '.join(files)}"
        yield from (f"  {change}" for change in self.changes[:SHOWN_CHANGES])
        if len(self.changes) > SHOWN_CHANGES:
            yield f"  and {counted(len(self.changes) - SHOWN_CHANGES, 'more setting')}"
        if not self.changes:
            yield f"  because {'of --force' if force else OTHER_CAUSES}"
        if self.outdated:
            yield f"  out of date afterwards: the results of {', '.join(stage.name for stage in self.outdated)}"
        yield "  to keep both: --keep, or another folder with --run"


def replacement(
    names: Sequence[str], settings: Settings, run: RunFolder, table: Sequence[Stage], *, force: bool
) -> Replacement | None:
    """What the stages ``names`` of ``table`` are about to replace in ``run`` under ``settings``; None if nothing."""
    ended = run.finished()
    stale: list[Stage] = []
    changed: set[Path] = set()
    for stage in table:
        if changed & set(stage.reads(run)) or (stage.name in names and _runs(stage, settings, run, force)):
            changed |= set(stage.writes(run))
            stale += [stage] if stage.name in ended else []
    replaced = tuple(stage for stage in stale if stage.name in names)
    outdated = tuple(stage for stage in stale if stage.name not in names)
    return Replacement(replaced, outdated, tuple(_changed_settings(run, settings))) if replaced else None


def are_done(names: Sequence[str], settings: Settings, run: RunFolder, table: Sequence[Stage]) -> bool:
    """Whether each of the stages ``names`` of ``table`` that applies to ``settings`` would be skipped in ``run``."""
    table, _ = applicable(table, names, settings, run)
    return not any(_runs(stage, settings, run, force=False) for stage in table if stage.name in names)


def _runs(stage: Stage, settings: Settings, run: RunFolder, force: bool) -> bool:
    """Whether ``stage`` will run, as far as that follows from the current files."""
    if force or not all(path.is_file() for path in stage.reads(run)):
        return True
    return not run.is_done(stage.name, stage.inputs(as_decided(settings, stage, run), run))


def _changed_settings(run: RunFolder, settings: Settings) -> Iterator[str]:
    """A line for each setting that differs from those of ``run``."""
    if not run.settings.is_file():
        return
    before = read_toml(run.settings)
    after = parse_toml(settings_text(settings))
    for name, old, new in toml_differences(before, after):
        yield f"{name}: {old} -> {new}"


def sibling_folder(
    names: Sequence[str], settings: Settings, run: RunFolder, table: Sequence[Stage], *, force: bool
) -> RunFolder:
    """A folder in which the stages ``names`` replace nothing: ``run``, or else one named after it with a number.

    A new folder gets those results of ``run`` that are not affected.
    """
    found = replacement(names, settings, run, table, force=force)
    if found is None:
        return run
    text, number = settings_text(settings), 2
    while (sibling := RunFolder(run.path.with_name(f"{run.path.name}-{number}"))).path.exists():
        same = sibling.settings.is_file() and sibling.settings.read_text(encoding="utf-8") == text
        if same and replacement(names, settings, sibling, table, force=force) is None:
            return sibling
        number += 1
    with run.lock():
        _copy(run, sibling, found, table)
    write_text(sibling.settings, text)
    return sibling


def _copy(run: RunFolder, sibling: RunFolder, found: Replacement, table: Sequence[Stage]) -> None:
    """Copy the results that ``found`` does not affect, all or none."""
    gone = [stage.name for stage in (*found.replaced, *found.outdated)]
    left = [stage for stage in table if stage.name in run.finished() and stage.name not in gone]
    paths = [path for stage in left for path in (*stage.writes(run), *stage.keeps(run))]
    unfinished = RunFolder(sibling.path.with_name(f".{sibling.path.name}.part"))
    shutil.rmtree(unfinished.path, ignore_errors=True)
    for path in (*paths, run.carried, run.stages):
        goal = unfinished.path / path.relative_to(run.path)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, goal)
        elif path.is_file():
            shutil.copy2(path, goal)
    unfinished.take_back(gone)
    unfinished.path.rename(sibling.path)
