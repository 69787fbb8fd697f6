"""The course of a sweep: which step of which cell starts next, and how the result of each step is handled."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from catro_deploy.agent.process import as_error
from catro_deploy.errors import CatroError, FaultError, MissedError
from catro_deploy.records.report import Report
from catro_deploy.records.sweep import CellFigures, CellStatus, StepTimes
from catro_deploy.report.cells import cell_figures
from catro_deploy.runs.records import load_if_there
from catro_deploy.sweep.cells import Cell
from catro_deploy.sweep.engine import LOST, Engine, Job
from catro_deploy.sweep.orders import Event
from catro_deploy.sweep.steps import STEPS, Step, is_done, needs_of, together

__all__ = ["CellState", "Watcher", "run_cells"]

ATTEMPTS = 4
"""Maximum number of attempts at one step if its machine is lost each time."""


@dataclass
class CellState:
    """The state of a cell: its status, its current step, what it missed or why it failed, and the steps that ran.

    ``queued``: its step was submitted to the engine and has not begun. ``share`` is the completed share of the step's
    current task, and ``text`` describes the task's progress. ``figures`` is set once the cell has finished with a
    report.
    """

    cell: Cell
    status: CellStatus = "waiting"
    step: Step | None = None
    queued: bool = False
    share: float | None = None
    text: str = ""
    problems: list[str] = field(default_factory=list)
    error: CatroError | None = None
    steps: list[StepTimes] = field(default_factory=list)
    figures: CellFigures | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the cell has finished: no further step of it will run."""
        return self.status in ("done", "missed", "failed")


class Watcher(Protocol):
    """Receives the events of a sweep."""

    def changed(self, state: CellState) -> None:
        """Called when a cell begins or ends a step, or has finished."""

    def advanced(self, state: CellState) -> None:
        """Called when a cell makes progress within a step."""

    def noted(self, state: CellState, text: str) -> None:
        """Called with each line that a stage of a cell logs."""


def run_cells(states: Sequence[CellState], engine: Engine, watcher: Watcher) -> None:
    """Run the steps of all unfinished cells; the steps of one cell run one after another.

    An error in one cell ends only that cell. When this function returns or raises, no step is running any more.
    """
    course = _Course(states, engine, watcher)
    try:
        course.run()
    finally:
        engine.stop()


class _Course:
    def __init__(self, states: Sequence[CellState], engine: Engine, watcher: Watcher) -> None:
        self._states, self._engine, self._watcher = states, engine, watcher
        self._ready: list[Job] = []
        self._running: dict[Job, CellState] = {}
        self._began: dict[Job, Event] = {}

    def run(self) -> None:
        for state in self._states:
            if not state.has_ended:
                self._go_on(state, STEPS)
        while self._ready or self._running:
            self._start_what_fits()
            job, event = self._engine.next()
            self._take(job, event)

    def _start_what_fits(self) -> None:
        """Start earlier steps first: trainings then run side by side, and measurements, which run alone, one by one."""
        self._ready.sort(key=lambda job: STEPS.index(job.steps[0]))
        for job in [*self._ready]:
            if self._engine.fits(job):
                self._ready.remove(job)
                state = self._state_of(job)
                self._running[job] = state
                state.status, state.queued, state.share, state.text = "running", True, None, ""
                self._engine.start(job)

    def _go_on(self, state: CellState, steps: Sequence[Step]) -> None:
        """Queue the first of ``steps`` that is not done yet, or finish the cell if all are done."""
        cell = state.cell
        for place, step in enumerate(steps):
            if not is_done(step, cell.settings, cell.run):
                state.status, state.step = "waiting", step
                following = together(steps[place:], cell.settings)
                self._ready.append(Job(cell, following, needs_of(step, cell.settings)))
                return
        state.problems = [line for step in STEPS for line in _missed(step, cell)]
        state.status, state.step = "missed" if state.problems else "done", None
        report = load_if_there(Report, cell.run)
        state.figures = cell_figures(report) if report else None
        self._watcher.changed(state)

    def _take(self, job: Job, event: Event) -> None:
        state, kind = self._running[job], event["event"]
        if kind == "begin":
            self._began[job] = event
            state.queued = False
            self._watcher.changed(state)
        elif kind == "step":
            self._step_to(state, event["stage"])
        elif kind == "note":
            self._watcher.noted(state, event["text"])
        elif kind == "task":
            state.share, state.text = event["share"], event["text"] or state.text
            self._watcher.advanced(state)
        else:
            self._end(job, state, event)

    def _step_to(self, state: CellState, stage: str) -> None:
        """Record that a process that runs several steps has reached the one that begins with ``stage``."""
        step = next(step for step in STEPS if stage in step.stages)
        if step is not state.step:
            state.step, state.share, state.text = step, None, ""
            self._watcher.changed(state)

    def _end(self, job: Job, state: CellState, event: Event) -> None:
        del self._running[job]
        state.queued = False
        if began := self._began.pop(job, None):
            device, where = job.needs.device, began["where"]
            times = StepTimes(
                "+".join(step.name for step in job.steps),
                began["time"],
                max(event["time"], began["time"]),
                where,
                device,
                job.attempt,
            )
            state.steps.append(times)
        if event["event"] == "end":
            self._go_on(state, STEPS[STEPS.index(job.steps[-1]) + 1 :])
        elif event["event"] == LOST and job.attempt < ATTEMPTS:
            self._watcher.noted(state, f"{event['problem']}; continuing from {job.cell.run.path}")
            state.status = "waiting"
            self._ready.append(Job(job.cell, job.steps, job.needs, job.attempt + 1))
            self._watcher.changed(state)
        else:
            self._fail(job, state, event)

    def _fail(self, job: Job, state: CellState, event: Event) -> None:
        error = _error(job, event)
        state.problems, state.error = error.problem.splitlines(), error
        state.status = "missed" if isinstance(error, MissedError) else "failed"
        self._watcher.changed(state)

    def _state_of(self, job: Job) -> CellState:
        return next(state for state in self._states if state.cell is job.cell)


def _missed(step: Step, cell: Cell) -> list[str]:
    """Lines that say which requirements the stages of ``step`` missed."""
    finished = [name for name in step.stages if name in cell.run.finished()]
    return [line for name in finished for missed in cell.run.missed(name) for line in missed.problem.splitlines()]


def _error(job: Job, event: Event) -> CatroError:
    if event["event"] == "error":
        return as_error(event)
    if event["event"] == LOST:
        return FaultError(f"{event['problem']}, {ATTEMPTS} times.", event.get("hint", ""))
    code = event["code"]
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return FaultError(
        f"The process of {job.cell.name} {how}.",
        "If memory ran out, run fewer cells side by side: set --cpus to more cores for each.",
    )
