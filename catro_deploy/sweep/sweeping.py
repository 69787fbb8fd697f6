"""A sweep in its folder: continues what earlier calls left unfinished, and records results as they arrive."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from catro_deploy.errors import CatroError, FaultError, MissedError
from catro_deploy.files import write_text
from catro_deploy.progress import Progress
from catro_deploy.records.files import read_record, write_record
from catro_deploy.records.sweep import CellRecord, CellStatus, SweepRecord
from catro_deploy.report.sweep import sweep_page
from catro_deploy.runs.holding import hold
from catro_deploy.sweep.cells import Cell, Load, make_cells, require_unchanged
from catro_deploy.sweep.driver import CellState, Watcher, run_cells
from catro_deploy.sweep.engine import Engine
from catro_deploy.sweep.matrix import Matrix
from catro_deploy.units import counted

__all__ = ["SweepFolder", "read_sweep", "sweep"]

AGAIN = "Delete it: the sweep writes it again, and the folders of its cells are kept."


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep, in which each cell has its own run folder."""

    path: Path

    @property
    def record(self) -> Path:
        """File with the status and results of all cells."""
        return self.path / "sweep.json"

    @property
    def page(self) -> Path:
        """The same as an HTML page."""
        return self.path / "sweep.html"

    def log(self, cell: Cell) -> Path:
        """Log file of the stages of ``cell``."""
        return self.path / "logs" / f"{cell.name}.log"


def sweep(
    matrix: Matrix,
    load: Load,
    folder: SweepFolder,
    open_engine: Callable[[Sequence[Cell]], Engine],
    watch: Callable[[Sequence[CellState]], AbstractContextManager[Watcher]],
    progress: Progress,
    *,
    replace: bool = False,
) -> tuple[SweepRecord, CatroError | None]:
    """Run the cells of ``matrix`` in ``folder``; those that finished earlier with the same settings are not run again.

    Returns:
        The record, and the error to raise once it is shown, if any: cells failed, or missed a requirement.

    Raises:
        UsageError: a cell cannot be run as requested; or cells were begun with other settings, and ``replace`` is
            false.
    """
    with hold(folder.path / ".lock", f"in {folder.path}", "choose another folder with --folder"):
        cells = make_cells(matrix, load, folder.path, progress)
        if not replace:
            require_unchanged(cells, folder.path)
        earlier = read_sweep(folder)
        _note_differences(cells, earlier, folder, progress)
        states = [CellState(cell) for cell in cells]
        for state in states:
            state.steps += earlier[state.cell.name].steps if state.cell.name in earlier else ()
        engine = open_engine(cells)
        with watch(states) as watcher:
            recorder = _Recorder(folder, states, watcher)
            try:
                run_cells(states, engine, recorder)
            finally:
                record = recorder.write()
    return record, _outcome(states, folder)


def read_sweep(folder: SweepFolder) -> dict[str, CellRecord]:
    """The recorded cells, by name.

    Raises:
        RunFolderError: the record is damaged.
    """
    if not folder.record.is_file():
        return {}
    return {cell.name: cell for cell in read_record(SweepRecord, folder.record, AGAIN).cells}


def _note_differences(
    cells: Sequence[Cell], earlier: dict[str, CellRecord], folder: SweepFolder, progress: Progress
) -> None:
    """Report which cells are new, and which are no longer in the sweep."""
    names = [cell.name for cell in cells]
    new = [name for name in names if name not in earlier]
    if gone := [name for name in earlier if name not in names]:
        progress.note(f"no longer in the sweep, their folders are kept: {', '.join(gone)}")
    if earlier and new:
        progress.note(f"new in the sweep: {', '.join(new)}")
    progress.note(f"{counted(len(cells), 'cell')} in {folder.path}")


class _Recorder:
    """Forwards all events to ``watcher``; writes the logs, the record and the page."""

    def __init__(self, folder: SweepFolder, states: Sequence[CellState], watcher: Watcher) -> None:
        self._folder, self._states, self._watcher = folder, states, watcher

    def changed(self, state: CellState) -> None:
        self.write()
        self._watcher.changed(state)

    def advanced(self, state: CellState) -> None:
        self._watcher.advanced(state)

    def noted(self, state: CellState, text: str) -> None:
        log = self._folder.log(state.cell)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self._watcher.noted(state, text)

    def write(self) -> SweepRecord:
        """Write sweep.json and sweep.html."""
        max_drop = self._states[0].cell.settings.verify.max_drop
        record = SweepRecord(tuple(map(_record_of, self._states)), max_drop)
        write_record(record, self._folder.record)
        write_text(self._folder.page, sweep_page(record, self._folder.path.resolve().name))
        return record


def _record_of(state: CellState) -> CellRecord:
    cell = state.cell
    status: CellStatus = "waiting" if state.queued else state.status
    return CellRecord(
        name=cell.name,
        target=cell.target,
        classes=cell.group,
        budget=cell.budget,
        precision=cell.precision,
        run=cell.run.path.name,
        status=status,
        problems=tuple(state.problems),
        steps=tuple(state.steps),
        figures=state.figures,
    )


def _outcome(states: Sequence[CellState], folder: SweepFolder) -> CatroError | None:
    failed = [state for state in states if state.status == "failed"]
    missed = [state for state in states if state.status == "missed"]
    if failed:
        first = failed[0].error
        hint = first.hint if first and all(state.problems == failed[0].problems for state in failed) else ""
        lines = [f"{state.cell.name}: {' '.join(state.problems)}" for state in failed]
        # On a line of its own: the hint may end with a command.
        again = f"Run the sweep again: what is finished is kept. The logs are in {folder.path / 'logs'}."
        return FaultError(
            "\n".join([f"{counted(len(failed), 'cell')} of {len(states)} failed.", *lines]), f"{hint}\n{again}".strip()
        )
    if missed:
        names = ", ".join(state.cell.name for state in missed)
        return MissedError(f"{counted(len(missed), 'cell')} of {len(states)} missed a requirement: {names}.")
    return None
