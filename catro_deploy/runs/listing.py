"""The run folders below a folder: list them, find one by its name, and remove one."""

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from catro_deploy.errors import RunFolderError
from catro_deploy.runs.folder import RunFolder
from catro_deploy.suggestions import did_you_mean
from catro_deploy.toml import read_toml

__all__ = ["RUNS", "WORK_FILE", "find_run", "newest_run", "remove_run", "require_removable", "run_folders"]

SHORTEST_PART = 3

RUNS = Path("runs")
"""Where a working folder keeps its run folders."""
WORK_FILE = "catro.toml"
"""The settings file of a working folder, which is never inside a run folder."""


def run_folders(root: Path) -> list[RunFolder]:
    """The run folders directly below ``root``, the most recently changed first."""
    found = [RunFolder(path.parent) for path in root.glob("*/run.toml")]
    return sorted(found, key=RunFolder.last_change, reverse=True)


def newest_run(root: Path) -> RunFolder:
    """The most recently changed run folder below ``root`` in which at least one stage has finished.

    Raises:
        RunFolderError: there is none.
    """
    found = [run for run in run_folders(root) if run.stages.is_file()]
    if not found:
        raise RunFolderError(
            f"There is no finished pruning in {root.absolute()}.",
            "Start one: catro-deploy prune --target x86-cpu --budget 0.5x",
        )
    return found[0]


def find_run(name: str, root: Path) -> RunFolder:
    """The run folder that ``name`` refers to: a path, a name below ``root``, or a part of exactly one such name.

    The part has at least ``SHORTEST_PART`` characters: an empty shell variable or "." refers to no run.

    If several names contain that part, the only one that ends with it is chosen: ``--keep`` appends a number to a name.

    Raises:
        RunFolderError: there is none, or ``name`` is a part of several.
    """
    for path in (Path(name), root / name):
        if (path / "run.toml").is_file():
            return RunFolder(path)
    names = [run.path.name for run in run_folders(root)]
    matches = [known for known in names if name in known] if len(name) >= SHORTEST_PART else []
    ending = [known for known in matches if known.endswith(name)]
    matches = ending if len(ending) == 1 else matches
    if len(matches) == 1:
        return RunFolder(root / matches[0])
    if matches:
        raise RunFolderError(f"{name!r} matches several runs: {', '.join(matches)}.", "Give more of the name.")
    if any(path.exists() for path in (Path(name), root / name)):
        raise RunFolderError(f"{name} is not a run folder: it has no run.toml.", "List them: catro-deploy runs list")
    hint = did_you_mean(name, names, otherwise="List them: catro-deploy runs list")
    raise RunFolderError(f"There is no run {name!r} in {root.absolute()}.", hint)


def require_removable(run: RunFolder) -> None:
    """Reject what ``remove_run`` would not delete.

    Raises:
        RunFolderError: it is not a run folder, it is a link to one, or it also contains the working folder, its
            settings, the checkpoint or the images.
    """
    if run.path.is_symlink():
        raise RunFolderError(f"{run.path} is a link to {run.path.readlink()}.", "Remove the link itself: rm")
    if not run.settings.is_file():
        raise RunFolderError(f"{run.path} is not a run folder: it has no run.toml.", "catro-deploy runs list")
    if foreign := next(_foreign(run), None):
        raise RunFolderError(f"{run.path} also contains {foreign}.", "Move that elsewhere, then remove the run again.")


def remove_run(run: RunFolder) -> None:
    """Delete the folder of ``run``. Links inside it are deleted, but not their targets.

    Raises:
        RunFolderError: see ``require_removable``; or another process has locked the run.
    """
    require_removable(run)
    with run.lock():
        shutil.rmtree(run.path)


def _foreign(run: RunFolder) -> Iterator[str]:
    """Files of the user in the folder of ``run`` that must not be deleted."""
    folder = run.path.resolve()
    if Path.cwd().is_relative_to(folder):
        yield "the working folder"
    for file in (WORK_FILE, "*/run.toml", "*/" + WORK_FILE):
        yield from (str(found) for found in run.path.glob(file))
    try:
        settings = read_toml(run.settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return
    for section, key, what in (("model", "checkpoint", "the checkpoint"), ("data", "root", "the images")):
        path = settings.get(section, {}).get(key)
        if isinstance(path, str) and Path(path).exists() and Path(path).resolve().is_relative_to(folder):
            yield f"{what} {path}"
