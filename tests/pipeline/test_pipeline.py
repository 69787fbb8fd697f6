from dataclasses import replace
from pathlib import Path

import pytest

from catro_deploy.agent.jobs import FactsJob
from catro_deploy.errors import (
    BudgetError,
    CheckpointError,
    DataError,
    DeviceError,
    MissedError,
    RunFolderError,
    SettingsError,
    StorageError,
    TargetError,
)
from catro_deploy.files import write_text
from catro_deploy.pipeline import (
    STAGES,
    ensure_checkpoint,
    run_folder_name,
    run_stages,
    train_checkpoint,
)
from catro_deploy.progress import Silent
from catro_deploy.resources import find
from catro_deploy.settings import load_settings
from catro_deploy.stages import applicable, preconditions
from catro_deploy.stages.preconditions import check_settings
from catro_deploy.stages.table import BUILD, QUANTIZE, RUNTIMES, SEARCH, VARIANTS
from catro_deploy.transports import sides
from catro_deploy.transports.registry import HERE, Device, add_device
from tests.notes import Notes
from tests.pipeline.driving import ALL, go, settings_with
from tests.quick_stages import TABLE, diary


def test_a_precision_is_decided_where_one_is_asked_for(run):
    every = [*ALL[:3], QUANTIZE, *ALL[3:]]
    assert go(run, every) == list(ALL)
    assert go(run, every, quantize={"precision": "int8"}) == [QUANTIZE, "verify", "bench", "ship", "report"]
    assert go(run, every, quantize={"precision": "int8"}) == []
    assert go(run, every, quantize={"precision": "auto"}, finetune={"epochs": 3}) == every[1:]
    assert go(run, every, finetune={"epochs": 3}) == ["verify", "bench", "ship", "report"]


def test_engines_are_built_for_runtimes_that_need_them(run, monkeypatch):
    monkeypatch.setattr(applicable, "reachable", lambda target, device: True)
    every = [stage.name for stage in STAGES if stage.name not in (SEARCH, VARIANTS, QUANTIZE, RUNTIMES)]
    assert go(run, every) == [name for name in every if name != BUILD]
    assert go(run, every, prune={"target": "x86-gpu"}) == every
    assert go(run, every, prune={"target": "x86-gpu"}) == []
    assert go(run, every, prune={"target": "x86-gpu"}, build={"level": 5}) == [BUILD, "verify", "bench", "report"]
    gpu = {"prune": {"target": "x86-gpu"}, "build": {"level": 5}, "export": {"dynamic_batch": True}}
    go(run, every, **gpu)
    assert go(run, every, **gpu, bench={"batches": [4]}) == [BUILD, "bench", "report"]


def test_runtimes_are_compared_where_that_is_asked_for_and_nothing_is_measured_again(run):
    assert RUNTIMES not in go(run)
    every = [stage.name for stage in STAGES if stage.name not in (SEARCH, VARIANTS, QUANTIZE, BUILD)]
    assert go(run, every, bench={"runtimes": ["auto"]}) == [RUNTIMES, "report"]
    assert go(run, every, bench={"runtimes": ["auto"]}) == []
    assert go(run, every, bench={"runtimes": ["openvino"]}) == [RUNTIMES, "report"]


def test_all_stages_run_in_order_and_not_again(run):
    assert go(run) == list(ALL)
    assert go(run) == []
    assert go(run, force=True) == list(ALL)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"prune": {"seed": 1}}, list(ALL)),
        ({"model": {"name": "cifar_resnet56"}}, list(ALL)),
        ({"data": {"seed": 1}}, list(ALL)),
        ({"finetune": {"epochs": 3}}, ["finetune", "export", "verify", "bench", "ship", "report"]),
        ({"export": {"opset": 19}}, ["export", "verify", "bench", "ship", "report"]),
        ({"export": {"input": "uint8"}}, ["export", "verify", "bench", "ship", "report"]),
        ({"verify": {"tolerance": 0.1}}, ["verify", "report"]),
        ({"bench": {"threads": 2}}, ["bench", "report"]),
        ({"profile": {"protocol": "quick"}}, []),
        ({"data": {"download": True, "workers": 1}}, []),
        ({"prune": {"budget": " 50 %FLOPS"}}, []),
    ],
)
def test_a_changed_setting_runs_again_what_depends_on_it(run, flags, expected):
    go(run)
    assert go(run, **flags) == expected
    assert go(run, **flags) == []


def test_the_same_classes_in_another_order_are_another_pruning(run):
    go(run, prune={"classes": ["a", "b"]})
    assert go(run, prune={"classes": ["b", "a"]}) == list(ALL)
    assert go(run, prune={"classes": ["b", "a"]}) == []


@pytest.mark.parametrize("budget", ["0.5x", "400us"])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"profile": {"protocol": "quick"}}, list(ALL)),
        ({"bench": {"threads": 2}}, list(ALL)),
        ({"bench": {"batch": 4}}, list(ALL)),
        ({"export": {"input": "uint8"}}, list(ALL)),
        ({"export": {"input": "float"}}, []),
        ({"bench": {"protocol": "quick"}}, ["bench", "report"]),
        ({"finetune": {"epochs": 3}}, ["finetune", "export", "verify", "bench", "ship", "report"]),
    ],
)
def test_a_latency_budget_depends_on_how_the_target_is_used(run, budget, flags, expected):
    before = {"prune": {"budget": budget}, "export": {"dynamic_batch": True}}
    go(run, **before)
    assert go(run, **before) == []
    assert go(run, **before | flags | {"export": before["export"] | flags.get("export", {})}) == expected


def test_a_protocol_that_was_edited_prunes_again_under_a_budget_of_latency(run, tmp_path):
    protocol = tmp_path / "own.toml"
    write_text(protocol, find("calibration/profile", "quick").read_text())
    for budget, expected in (("0.5x", list(ALL)), ("50%flops", [])):
        flags = {"prune": {"budget": budget}, "profile": {"protocol": str(protocol)}}
        go(run, **flags)
        write_text(protocol, protocol.read_text() + "# changed\n")
        assert go(run, **flags) == expected


def test_two_ways_of_writing_a_budget_are_one(run):
    go(run, prune={"budget": "1.5ms"})
    assert go(run, prune={"budget": "1500 \u00b5s"}) == []


def test_a_changed_checkpoint_runs_everything_again_at_any_path(run, tmp_path):
    go(run)
    (tmp_path / "baseline.safetensors").rename(tmp_path / "moved.safetensors")
    moved = {"checkpoint": tmp_path / "moved.safetensors"}
    assert go(run, model=moved) == []
    write_text(tmp_path / "moved.safetensors", "other weights")
    assert go(run, model=moved) == list(ALL)


def test_a_changed_output_is_made_again(run):
    go(run)
    write_text(run.pruned_onnx, "somebody's")
    assert go(run) == ["export", "verify", "bench", "ship", "report"]


def test_settings_are_kept_in_the_folder(run):
    go(run, finetune={"epochs": 3})
    assert load_settings(run.settings, {}).finetune.epochs == 3


def test_one_stage_runs_alone(run):
    assert go(run, ["prune"]) == ["prune"]
    assert go(run, ["finetune"]) == ["finetune"]
    assert go(run, ["finetune"]) == []
    assert go(run, ["finetune"], force=True) == ["finetune"]


def test_a_stage_whose_upstream_is_missing_says_which(run):
    go(run, ["prune"])
    with pytest.raises(RunFolderError, match=f"catro-deploy finetune --run {run.path}"):
        go(run, ["export"])


def test_a_stage_whose_upstream_restarted_and_did_not_end_is_refused(run, monkeypatch):
    go(run)
    monkeypatch.setenv("QUICK_FAIL", "finetune:fault")
    with pytest.raises(RuntimeError):
        go(run, ["finetune"], force=True)
    assert run.weights.is_file()  # from the first run
    for stage in ("export", "verify"):
        with pytest.raises(RunFolderError, match=rf"\b{stage}\b.*\bfinetune\b[\s\S]*catro-deploy finetune --run"):
            go(run, [stage])


def test_results_without_the_checkpoint_can_still_be_used(run, tmp_path):
    go(run, ["prune", "finetune"])
    (tmp_path / "baseline.safetensors").unlink()
    assert go(run, ["export"]) == ["export"]


@pytest.mark.parametrize("force", [False, True])
def test_a_variant_has_a_number_after_the_search_only(run, force):
    def searched(**more):
        flags = {"search": {"enabled": True, **more}, "prune": {"budget": "0.5x"}}
        return go(run, (VARIANTS, "prune"), force=force and run.variants.is_file(), **flags)

    with pytest.raises(SettingsError, match="There is no variant 2 yet"):
        searched(take=2)
    assert diary(run) == []
    assert searched(take=1) == [VARIANTS, "prune"]
    if force:
        with pytest.raises(SettingsError, match="There is no variant 2 yet"):
            searched(take=2)
    else:
        assert searched(take=2) == ["prune"]


def test_what_is_missed_lets_the_later_stages_run_and_is_reported_again_each_time(run):
    strict = settings_with(verify={"max_drop": 1.0})
    for _ in range(2):
        missed = run_stages(ALL, strict, run, Silent(), table=TABLE)
        assert isinstance(missed, MissedError)
        assert missed.problem == "Pruning cost 2.0 points."
        assert missed.hint == "See verify.json."
    assert diary(run).count("verify") == 1
    assert diary(run)[-1] == "report"


def test_other_errors_stop_and_earlier_stages_stay_done(run, monkeypatch):
    monkeypatch.setenv("QUICK_FAIL", "export:fault")
    with pytest.raises(RuntimeError):
        go(run)
    monkeypatch.delenv("QUICK_FAIL")
    assert go(run) == ["export", "verify", "bench", "ship", "report"]


def test_errors_of_input_pass_through(run):
    with pytest.raises(DataError):
        go(run, prune={"classes": ["no_such_class"]})


def test_a_missing_checkpoint_is_named(run, tmp_path):
    (tmp_path / "baseline.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"baseline\.safetensors[\s\S]*catro-deploy train"):
        go(run)


def test_the_folder_name_distinguishes_prunings_only():
    def name(**flags):
        return run_folder_name(load_settings(None, flags))

    assert name().startswith("x86-cpu-all-0.5x-")
    assert name(prune={"budget": "1.5ms"}).startswith("x86-cpu-all-1500us-")
    two = name(prune={"classes": ["b c", 1], "budget": "9.25%flops"})
    assert two.startswith("x86-cpu-b_c+1-9.25pct-flops-")
    assert two == name(prune={"classes": ["b c", "1"], "budget": "9.25 % flops"})
    assert two != name(prune={"classes": [1, "b c"], "budget": "9.25%flops"})
    assert name() == name(finetune={"epochs": 99}, bench={"threads": 3}, data={"download": True})
    others = [{"prune": {"seed": 1}}, {"data": {"root": "elsewhere"}}, {"model": {"mean": [0, 0, 0]}}]
    assert len({name(), *(name(**other) for other in others)}) == 4


def test_the_folders_name_follows_the_checkpoints_content(tmp_path):
    before = run_folder_name(load_settings(None, {}))
    write_text(tmp_path / "baseline.safetensors", "other")
    assert run_folder_name(load_settings(None, {})) != before


def test_the_names_length_is_bounded():
    assert len(run_folder_name(load_settings(None, {"prune": {"classes": ["x" * 300]}}))) < 100


def test_wrong_target_and_budget_are_found_before_anything_runs():
    with pytest.raises(TargetError, match=r"'x86cpu'.*\bx86-cpu\b"):
        check_settings(load_settings(None, {"prune": {"target": "x86cpu"}}))
    with pytest.raises(BudgetError):
        check_settings(load_settings(None, {"prune": {"budget": "50%"}}))


def test_a_budget_of_energy_on_a_device_without_sensors_is_found_before_anything_runs(monkeypatch):
    asked = load_settings(None, {"prune": {"max_energy": "3mJ"}})
    found = sides.run_job(HERE, FactsJob("onnxruntime"), Path(), ())
    monkeypatch.setattr(sides, "run_job", lambda *arguments: replace(found, reports_power=False))
    with pytest.raises(TargetError, match="x86-cpu: the device does not report power"):
        check_settings(asked)
    check_settings(load_settings(None, {}))
    monkeypatch.setattr(sides, "run_job", lambda *arguments: replace(found, reports_power=True))
    check_settings(asked)


def test_a_wrong_profiling_protocol_is_found_before_anything_runs():
    with pytest.raises(SettingsError, match=r"'quik'.*\bquick\b"):
        check_settings(load_settings(None, {"profile": {"protocol": "quik"}}))


def test_a_baseline_is_trained_if_it_is_missing_and_wanted(tmp_path):
    checkpoint = tmp_path / "baseline.safetensors"
    wanted = load_settings(None, {"train": {"epochs": 3}})
    ensure_checkpoint(wanted, Silent())
    assert checkpoint.read_text() == "weights"
    checkpoint.unlink()
    ensure_checkpoint(load_settings(None, {}), Silent())
    assert not checkpoint.exists()
    ensure_checkpoint(wanted, Silent())
    assert checkpoint.read_text() == "trained 3 epochs"


def test_no_baseline_is_trained_if_a_class_to_keep_does_not_exist(tmp_path):
    (tmp_path / "baseline.safetensors").unlink(missing_ok=True)
    data = {"name": "tests.tiny:dataset", "size": 16}
    asked = {"data": data, "train": {"epochs": 3}, "prune": {"classes": ["1", "99"]}}
    with pytest.raises(DataError, match="no class 99"):
        ensure_checkpoint(load_settings(None, asked), Silent())
    assert not (tmp_path / "baseline.safetensors").exists()


def test_two_trainings_of_one_file_do_not_mix(tmp_path):
    from catro_deploy.runs.holding import hold

    with (
        hold(tmp_path / ".baseline.safetensors.lock", "here", "elsewhere"),
        pytest.raises(RunFolderError, match=r"baseline\.safetensors"),
    ):
        train_checkpoint(load_settings(None, {"train": {"epochs": 3}}), Silent())


def test_every_file_that_a_stage_reads_comes_from_an_earlier_one(run):
    made: set = set()
    for stage in STAGES:
        assert set(stage.reads(run)) <= made
        assert not made & set(stage.writes(run))
        made |= set(stage.writes(run))


@pytest.fixture
def gone(monkeypatch, tmp_path):
    """A device at whose address nothing answers."""
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))
    add_device(Device(name="gone", ssh="ssh://nobody@127.0.0.1:1", target="x86-cpu"))


def test_a_device_that_cannot_be_reached_is_reported_before_the_first_stage(run, gone):
    two = {"prune": {"target": ["x86-cpu", "x86-cpu@gone"]}}
    with pytest.raises(DeviceError, match=r"gone .*cannot be reached"):
        go(run, **two)
    assert diary(run) == []
    with pytest.raises(DeviceError, match="gone"):  # in a sweep, which prunes and measures in separate calls
        run_stages(("prune",), settings_with(**two), run, Silent(), table=TABLE, ahead=("finetune", "verify"))
    assert go(run, ("prune",), **two) == ["prune"]


def test_a_device_that_cannot_be_reached_replaces_neither_results_nor_settings(run, gone):
    go(run)
    before, notes = run.settings.read_text(), Notes()
    asked = settings_with(prune={"device": "gone"})
    with pytest.raises(DeviceError, match=r"gone .*cannot be reached"):
        run_stages(("bench",), asked, run, notes, table=TABLE)
    assert notes.lines == ["checking that gone can be used"]
    assert run.settings.read_text() == before


def test_a_device_is_not_needed_for_what_is_done(run, gone, monkeypatch):
    two = {"prune": {"target": ["x86-cpu", "x86-cpu@gone"]}}
    with monkeypatch.context() as patch:
        patch.setattr(preconditions, "run_job", lambda *arguments, **more: None)
        go(run, **two)
    run.report("md").unlink()
    assert go(run, **two) == ["report"]
    with pytest.raises(DeviceError):
        go(run, ("bench",), force=True, **two)
    assert go(run, **two) == []


def test_a_cache_that_cannot_be_written_takes_no_results_back(run, monkeypatch):
    go(run)
    monkeypatch.setenv("CATRO_CACHE", "/dev/null")
    with pytest.raises(StorageError, match="/dev/null"):
        go(run, ("bench",), force=True)
    assert go(run) == []
