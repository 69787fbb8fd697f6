"""The execution of a sweep, with a fake engine that only follows the engine protocol."""

import pytest

from catro_deploy import pipeline
from catro_deploy.budget import Budgets
from catro_deploy.errors import FaultError
from catro_deploy.progress import Silent
from catro_deploy.sweep import local
from catro_deploy.sweep.driver import CellState, run_cells
from catro_deploy.sweep.engine import Job
from catro_deploy.sweep.local import LocalEngine
from catro_deploy.sweep.steps import STEPS, Needs, needs_of, together
from tests.quick_stages import TABLE
from tests.sweep.test_cells import cells_of

PRUNE, FINETUNE, MEASURE = STEPS


class Heard:
    """A watcher that records its calls."""

    def __init__(self):
        self.said = []

    def changed(self, state):
        self.said.append((state.cell.name, state.status, state.step.name if state.step else None))

    def advanced(self, state):
        pass

    def noted(self, state, text):
        self.said.append((state.cell.name, "note", text))


class Scripted:
    """An engine whose jobs finish in the order in which they were started, each with the event from ``ends``."""

    def __init__(self, ends, slots=2):
        self.ends, self.slots = ends, slots
        self.started, self.jobs, self.events, self.stopped = [], [], [], False

    def fits(self, job):
        return len(self.jobs) < self.slots

    def start(self, job):
        self.started.append(job)
        self.jobs.append(job)
        self.events.append((job, {"event": "begin", "time": 1.0, "where": "here"}))

    def next(self):
        if self.events:
            return self.events.pop(0)
        job = self.jobs.pop(0)
        return job, {"time": 2.0, **self.ends(job)}

    def stop(self):
        self.stopped = True


def fails(job):
    return {"event": "error", "kind": "DataError", "problem": "No images.", "hint": "Add some."}


@pytest.fixture
def cells(tiny):
    return cells_of(tiny, budgets=["50%flops", "30%flops"])


def test_an_error_ends_its_cell_alone_and_all_others_continue(cells):
    states = [CellState(cell) for cell in cells]
    engine = Scripted(fails)
    run_cells(states, engine, Heard())
    assert [state.status for state in states] == ["failed", "failed"]
    assert [state.problems for state in states] == [["No images."], ["No images."]]
    assert states[0].steps[0].step == "prune+finetune"
    assert engine.stopped


def test_a_budget_that_nothing_meets_is_missed_and_no_failure(cells):
    states = [CellState(cell) for cell in cells]
    missed = {"event": "error", "kind": "MissedError", "problem": "No network meets it.", "hint": ""}
    run_cells(states, Scripted(lambda job: missed), Heard())
    assert [state.status for state in states] == ["missed", "missed"]


def test_a_killed_process_fails_its_cell_and_says_how(cells):
    state = CellState(cells[0])
    run_cells([state], Scripted(lambda job: {"event": "killed", "code": -9}), Heard())
    assert state.status == "failed"
    assert "was killed by signal 9" in state.problems[0]
    assert isinstance(state.error, FaultError)


def test_a_lost_machine_costs_an_attempt_and_four_are_enough(cells):
    state, engine, heard = (
        CellState(cells[0]),
        Scripted(lambda job: {"event": "lost", "problem": "Node 7 is gone"}),
        Heard(),
    )
    run_cells([state], engine, heard)
    assert [job.attempt for job in engine.started] == [1, 2, 3, 4]
    assert state.status == "failed"
    assert state.problems == ["Node 7 is gone, 4 times."]
    assert not state.queued
    assert sum("continuing from" in text for _, kind, text in heard.said if kind == "note") == 3


def test_what_is_done_is_not_done_again(cells, monkeypatch):
    monkeypatch.setattr(pipeline, "STAGES", TABLE)
    for cell in cells:
        pipeline.run_stages(
            [name for step in STEPS for name in step.stages], cell.settings, cell.run, Silent(), table=TABLE
        )
    states, engine = [CellState(cell) for cell in cells], Scripted(fails)
    run_cells(states, engine, Heard())
    assert engine.started == []
    assert [state.status for state in states] == ["done", "done"]
    assert states[0].figures.score == 0.96

    cells[1].run.pruned_onnx.unlink()
    states = [CellState(cell) for cell in cells]
    run_cells(states, engine, Heard())
    assert [(job.cell, job.steps) for job in engine.started] == [(cells[1], (MEASURE,))]


def with_budget(cell, budget, **prune):
    prune["budget"] = Budgets.parse(budget)
    return cell.settings.model_copy(update={"prune": cell.settings.prune.model_copy(update=prune)})


def test_what_steps_need(cells):
    flops = with_budget(cells[0], "50%flops")
    assert needs_of(PRUNE, flops).device is None
    assert needs_of(MEASURE, flops) == Needs("x86-cpu", here=True)
    assert together(STEPS, flops) == (PRUNE, FINETUNE)

    timed = with_budget(cells[0], "0.5x")
    assert needs_of(PRUNE, timed).device == "x86-cpu"
    assert needs_of(FINETUNE, timed).device is None
    assert together(STEPS, timed) == (PRUNE,)

    far = with_budget(cells[0], "0.5x", target="arm-cpu", device="board")
    assert needs_of(MEASURE, far) == Needs("board", here=False)

    unreachable = with_budget(cells[0], "0.5x", target="jetson-orin")
    assert together(STEPS, unreachable) == STEPS


def job(cell, *needs, **given):
    return Job(cell, (MEASURE,), Needs(*needs, **given))


def test_nothing_computes_during_a_measurement_on_this_machine(cells, monkeypatch):
    monkeypatch.setattr(LocalEngine, "_follow", lambda self, job, gpu: None)
    monkeypatch.setattr(local, "available_bytes", lambda: 2**40)
    training, here = job(cells[0]), job(cells[1], "x86-cpu", here=True)
    engine = LocalEngine(4, 1)
    assert engine.fits(here)
    engine.start(training)
    assert engine.fits(training)
    assert not engine.fits(here)

    engine = LocalEngine(4, 1)
    engine.start(here)
    assert not engine.fits(training)


def test_a_board_is_measured_on_by_one_at_a_time_while_trainings_continue(cells, monkeypatch):
    monkeypatch.setattr(LocalEngine, "_follow", lambda self, job, gpu: None)
    monkeypatch.setattr(local, "available_bytes", lambda: 2**40)
    engine = LocalEngine(3, 1)
    engine.start(job(cells[0], "board"))
    assert not engine.fits(job(cells[1], "board"))
    assert engine.fits(job(cells[1], "other"))
    assert engine.fits(job(cells[1]))
    engine.start(job(cells[1]))
    engine.start(job(cells[1]))
    assert not engine.fits(job(cells[1]))  # three jobs are the limit


def test_memory_bounds_what_runs_side_by_side(cells, monkeypatch):
    monkeypatch.setattr(LocalEngine, "_follow", lambda self, job, gpu: None)
    engine = LocalEngine(8, 1)
    monkeypatch.setattr(local, "available_bytes", lambda: 2**20)
    assert engine.fits(job(cells[0]))  # a job may always run alone
    engine.start(job(cells[0]))
    assert not engine.fits(job(cells[1]))


def test_the_system_says_what_memory_is_left():
    assert 0 < local.available_bytes() < 2**50
