"""The pipeline for targets that cannot be reached from this machine, with the quick stages."""

import pytest

from catro_deploy.errors import TargetError
from catro_deploy.files import write_text
from catro_deploy.pipeline import run_stages
from catro_deploy.resources import find
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import load_settings
from catro_deploy.stages.preconditions import check_settings
from tests.notes import Notes
from tests.quick_stages import TABLE, diary

ALL = tuple(stage.name for stage in TABLE)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "baseline.safetensors", "weights")
    return RunFolder(tmp_path / "run")


def on_jetson(run, stages=ALL, **flags):
    """Run ``stages`` for a device that cannot be reached; return the stages that ran, and the notes."""
    before, notes = len(diary(run)), Notes()
    settings = load_settings(None, {"prune": {"target": "jetson-orin"}, "finetune": {"epochs": 2}} | flags)
    assert run_stages(stages, settings, run, notes, table=TABLE) is None
    return [name for name in diary(run)[before:] if not name.startswith("epoch")], notes.lines


def test_for_a_target_out_of_reach_what_runs_there_is_left_out(run):
    ran, said = on_jetson(run)
    assert ran == ["prune", "finetune", "export", "ship", "report"]
    assert said[0] == "build, verify and bench: left out, jetson-orin cannot be reached from here"
    assert not run.verify.exists()
    ran, said = on_jetson(run)
    assert ran == []
    assert "report: unchanged, skipped" in said
    assert on_jetson(run, finetune={"epochs": 3})[0] == ["finetune", "export", "ship", "report"]


def test_stages_one_by_one_for_a_target_out_of_reach(run):
    for stage in ("prune", "finetune", "export", "ship", "report"):
        ran, said = on_jetson(run, [stage])
        assert ran == [stage]
        assert not any("left out" in line for line in said)


@pytest.mark.parametrize("stage", ["verify", "bench"])
def test_asked_for_alone_such_a_stage_is_refused_and_takes_nothing_back(run, stage):
    on_jetson(run)
    with pytest.raises(TargetError, match=rf"\b{stage}\b.*jetson-orin") as caught:
        on_jetson(run, [stage])
    assert caught.value.exit_code == 2
    assert on_jetson(run)[0] == []


def test_a_target_of_which_nothing_is_known_can_have_no_budget_of_latency(tmp_path):
    file = tmp_path / "box.toml"
    write_text(file, find("targets", "x86-cpu").read_text().replace("\n[sources]", '\ntransport = "ssh"\n[sources]', 1))
    with pytest.raises(TargetError, match=r"\bbox\b[\s\S]*--budget 50%flops"):
        check_settings(load_settings(None, {"prune": {"target": str(file), "budget": "0.5x"}}))
    check_settings(load_settings(None, {"prune": {"target": str(file), "budget": "50%flops"}}))
    check_settings(load_settings(None, {"prune": {"target": "jetson-orin", "budget": "0.5x"}}))
