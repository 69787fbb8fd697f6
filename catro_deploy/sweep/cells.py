"""The cells of a sweep: each is an ordinary run with its own settings and folder; all are checked before one starts."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from catro_deploy import pipeline, resources
from catro_deploy.data import resolve_classes
from catro_deploy.errors import CatroError, RunFolderError, SettingsError
from catro_deploy.progress import Progress
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import TARGETS_OWN, Settings, settings_text
from catro_deploy.settings.labels import require_labels_unneeded
from catro_deploy.stages.preconditions import check_settings
from catro_deploy.sweep.matrix import Combination, Matrix, group_name
from catro_deploy.sweep.steps import STEPS
from catro_deploy.toml import parse_toml, read_toml, toml_differences
from catro_deploy.transports.registry import find_device, load_devices
from catro_deploy.units import counted

__all__ = ["Cell", "Load", "changed_cells", "make_cells", "require_unchanged", "settings_of"]

Load = Callable[[Mapping[str, Mapping[str, Any]]], Settings]
"""Loads the settings, overridden by flags: section to key to value."""

SHOWN_CHANGES, SHOWN_CELLS = 8, 4


@dataclass(frozen=True)
class Cell:
    """One run of a sweep. ``target`` is a target or one of the user's devices; ``group`` is the name of its classes.

    ``settings`` are the settings of the run, and ``run`` is its folder.
    """

    name: str
    target: str
    group: str
    budget: str
    precision: str
    settings: Settings
    run: RunFolder

    @property
    def text(self) -> str:
        """The settings as they are written to run.toml."""
        return settings_text(self.settings)


def make_cells(matrix: Matrix, load: Load, folder: Path, progress: Progress) -> tuple[Cell, ...]:
    """The cells of ``matrix``, with their runs in ``folder``; ``load`` reads the settings that all of them share.

    A missing baseline is trained if there is a ``[train]`` section.

    Raises:
        SettingsError: two cells are the same, or settings are incompatible.
        TargetError: a target or device is unknown, or a cell cannot be measured from here.
        DataError: a class is unknown, or images are missing.
        RunFolderError: two cells share one folder.
    """
    cells = [_cell(one, load, folder) for one in matrix.combinations]
    _require_different(cells)
    for cell in cells:
        with _named(cell):
            require_labels_unneeded([name for step in STEPS for name in step.stages], cell.settings)
            check_settings(cell.settings)
    return _with_images(cells, progress)


def settings_of(one: Combination, load: Load) -> Settings:
    """The settings of the cell ``one``, without what follows from the images.

    Raises:
        SettingsError: they are invalid.
        TargetError: a target or device is unknown.
    """
    asked: dict[str, dict[str, Any]] = {"prune": {}, "quantize": {}}
    if one.target is not None:
        asked["prune"] |= _target(one.target)
    if one.group is not None:
        asked["prune"]["classes"] = list(one.classes)
    if one.budget is not None:
        asked["prune"]["budget"] = one.budget
    if one.precision is not None:
        asked["quantize"]["precision"] = one.precision
    return pipeline.with_search(pipeline.with_target_of_device(load(asked)))


def _cell(one: Combination, load: Load, folder: Path) -> Cell:
    settings = settings_of(one, load)
    chosen = settings.prune
    target = one.target or chosen.device or Path(chosen.target).stem
    group = one.group or group_name(chosen.classes)
    budget, precision = str(chosen.budget), settings.quantize.precision
    words = [Path(target).stem, group, budget.replace("%", "pct-"), *([precision] if precision != TARGETS_OWN else [])]
    name = "-".join(re.sub(r"[^\w.+-]+", "_", word) for word in words)
    return Cell(name, target, group, budget, precision, settings, RunFolder(folder / name))


def _target(name: str) -> dict[str, str]:
    """The settings that select a target, or one of the user's devices and its target."""
    if name in load_devices() and name not in resources.names("targets"):
        return {"target": find_device(name).target, "device": name}
    return {"target": name, "device": ""}


def _require_different(cells: Sequence[Cell]) -> None:
    """Check that each cell has its own settings and its own folder.

    Raises:
        SettingsError, RunFolderError: two share them.
    """
    texts: dict[str, Cell] = {}
    names: dict[str, Cell] = {}
    folders: dict[Path, Cell] = {}
    for cell in cells:
        other = texts.setdefault(cell.text, cell)
        if other is not cell:
            raise SettingsError(
                f"Two cells are the same run: {_words(other)}, and {_words(cell)}.",
                "Name each target, group of classes, budget and precision once.",
            )
        other = names.setdefault(cell.name.casefold(), cell)
        if other is not cell:
            raise SettingsError(
                f"Two cells would be called {cell.name}: {_words(other)}, and {_words(cell)}.",
                "Give groups of classes other names ([classes] in sweep.toml), or target files other names.",
            )
        other = folders.setdefault(cell.run.path.resolve(), cell)
        if other is not cell:
            raise RunFolderError(
                f"The cells {other.name} and {cell.name} share one folder: {cell.run.path.resolve()}.",
                "Remove the link.",
            )


def _words(cell: Cell) -> str:
    precision = "" if cell.precision == TARGETS_OWN else f", {cell.precision}"
    return f"{cell.target}, {cell.group}, {cell.budget}{precision}"


def _with_images(cells: Sequence[Cell], progress: Progress) -> tuple[Cell, ...]:
    """``cells`` with the weights and the size of the images, which all of them share; checks that their classes exist.

    Raises:
        DataError: a class is unknown, or images are missing.
    """
    from catro_deploy.stages.images import open_images_of
    from catro_deploy.stages.pretrained import with_pretrained
    from catro_deploy.stages.sizes import sized, with_size

    shared = with_pretrained(cells[0].settings, progress)
    shared = with_size(shared)
    dataset = open_images_of(shared, sized(shared))
    found = []
    for cell in cells:
        if dataset.classes:
            with _named(cell):
                resolve_classes(dataset.classes, dataset.groups, cell.settings.prune.classes)
        settings = cell.settings.model_copy(update={"model": shared.model, "data": shared.data})
        found.append(replace(cell, settings=settings))
    pipeline.ensure_checkpoint(shared, progress)
    return tuple(found)


@contextmanager
def _named(cell: Cell) -> Iterator[None]:
    """Prefix an error with the name of its cell."""
    try:
        yield
    except CatroError as error:
        error.problem = f"{cell.name}: {error.problem}"
        raise


def changed_cells(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Settings that have changed since their cells were begun: cell name to lines such as ``a.b: 1 -> 2``.

    Raises:
        RunFolderError: a run.toml cannot be read.
    """
    changes = {cell.name: list(_changes(cell)) for cell in cells}
    return {name: lines for name, lines in changes.items() if lines}


def _changes(cell: Cell) -> Iterator[str]:
    if not cell.run.settings.is_file():
        return
    try:
        before = read_toml(cell.run.settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunFolderError(f"{cell.run.settings} cannot be read: {error}.", "Was it changed by hand?") from error
    for name, old, new in toml_differences(before, parse_toml(cell.text)):
        yield f"{name}: {old} -> {new}"


def require_unchanged(cells: Sequence[Cell], folder: Path) -> None:
    """Check that no cell was begun with other settings.

    Raises:
        SettingsError: a cell was.
    """
    changed = changed_cells(cells)
    if not changed:
        return
    names = [*changed]
    lines = list(dict.fromkeys(line for one in changed.values() for line in one))
    shown = [f"  {line}" for line in lines[:SHOWN_CHANGES]]
    more = [f"  and {counted(len(lines) - SHOWN_CHANGES, 'more setting')}"] if len(lines) > SHOWN_CHANGES else []
    rest = f" and {len(names) - SHOWN_CELLS} more" if len(names) > SHOWN_CELLS else ""
    begun = f"{', '.join(names[:SHOWN_CELLS])}{rest} in {folder} {'was' if len(names) == 1 else 'were'} begun"
    raise SettingsError(
        "\n".join([f"{begun} with other settings:", *shown, *more]),
        "To replace the results that depend on them: --replace. To keep both: --folder with another folder.",
    )
