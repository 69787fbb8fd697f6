"""The commands with the quick stages: which run a command continues, what is printed where, and exit codes."""

import json

import pytest

from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import load_settings
from tests.cli.conftest import document
from tests.quick_stages import diary

STEPS = ("prune", "finetune", "export", "verify", "bench", "report")


def test_the_steps_one_by_one_continue_the_newest_run(catro, the_run):
    assert catro("prune", "--target", "x86-cpu", "--classes", "speed_limits").exit_code == 0
    for step in STEPS[1:]:
        result = catro(step)
        assert result.exit_code == 0, result.output
    assert the_run().name.startswith("x86-cpu-speed_limits-0.5x-")
    assert [name for name in diary(RunFolder(the_run())) if name in STEPS] == list(STEPS)


def test_run_does_everything_and_nothing_twice(catro, the_run):
    command = ("run", "--target", "x86-cpu", "--classes", "direction_signs", "--budget", "50%flops")
    first, second = catro(*command), catro(*command)
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout == second.stdout
    assert [f"{step}: unchanged, skipped" in second.stderr for step in STEPS] == [True] * 6
    assert diary(RunFolder(the_run())).count("prune") == 1
    assert "report.html" in first.stdout


def test_run_and_bench_compare_runtimes_if_asked(catro, the_run):
    assert catro("run", "--target", "x86-cpu", "--budget", "50%flops", "--runtimes", "auto").exit_code == 0
    run = RunFolder(the_run())
    assert diary(run)[-4:] == ["bench", "runtimes", "ship", "report"]
    run.runtimes.unlink()
    refused = catro("report")
    assert refused.exit_code == 2
    assert "Continue with: catro-deploy bench --run runs/" in refused.stderr
    assert catro("bench").exit_code == 0
    assert catro("report").exit_code == 0


def test_runtimes_that_cannot_be_compared_are_not_kept_in_the_run_folder(catro, the_run):
    assert catro("run", "--target", "x86-cpu", "--budget", "50%flops").exit_code == 0
    before = RunFolder(the_run()).settings.read_text()
    refused = catro("bench", "--runtimes", "tensorrt")
    assert refused.exit_code == 2
    assert "cannot be compared in tensorrt" in refused.stderr
    assert RunFolder(the_run()).settings.read_text() == before
    assert catro("bench").exit_code == catro("report").exit_code == 0


@pytest.mark.parametrize("flags", [("--batch", "4"), ("-o", "bench.batches=[1, 4]")])
def test_more_images_at_a_time_than_the_files_take_are_not_kept_in_the_run_folder(catro, the_run, flags):
    assert catro("run", "--target", "x86-cpu", "--budget", "50%flops").exit_code == 0
    before = RunFolder(the_run()).settings.read_text()
    refused = catro("bench", *flags)
    assert refused.exit_code == 2
    assert "Add --dynamic-batch" in refused.stderr
    assert RunFolder(the_run()).settings.read_text() == before


def test_another_command_gets_another_folder(catro, folder):
    for budget in ("50%flops", "30%flops"):
        assert catro("prune", "--budget", budget).exit_code == 0
    assert len(list((folder / "runs").iterdir())) == 2
    assert json.loads(catro("prune", "--budget", "50%flops", "--json").stdout)["budget"] == "50%flops"


def test_a_flag_of_a_later_step_is_kept_for_the_next_time(catro, the_run):
    catro("prune")
    assert document(catro("finetune", "--epochs", "5", "--json"))["epochs"][-1]["epoch"] == 5
    assert load_settings(the_run() / "run.toml", {}).finetune.epochs == 5
    again = catro("finetune")
    assert "finetune: unchanged, skipped" in again.stderr
    assert "settings are those of" in again.stderr.replace("\n", " ")
    assert "5 epochs" in again.stdout


def test_an_explicit_config_replaces_later_settings_but_not_the_pruning(catro, folder, the_run):
    catro("prune", "--seed", "4")
    (folder / "other.toml").write_text("[finetune]\nepochs = 7\n[prune]\nseed = 9\n")
    assert len(document(catro("finetune", "--config", "other.toml", "--json"))["epochs"]) == 7
    assert load_settings(the_run() / "run.toml", {}).prune.seed == 4


def test_a_chosen_folder_is_used_and_continued_with_its_own_settings(catro, folder):
    assert catro("run", "--run", "mine", "--seed", "4").exit_code == 0
    result = catro("run", "--run", "mine", "--json")
    assert document(result)["run"] == "mine"
    assert diary(RunFolder(folder / "mine")).count("prune") == 1


@pytest.mark.parametrize("step", ["prune", "finetune", "export", "verify", "bench", "report"])
def test_json_is_one_document_and_all_else_goes_to_stderr(catro, step):
    catro("run")
    result = catro(step, "--json", "--force")
    assert document(result)["run"].startswith("runs/x86-cpu-all")
    assert f"{step}: done in" in result.stderr
    assert "run folder: runs/" in result.stderr


def test_run_prints_the_reports_content_as_json(catro):
    content = document(catro("run", "--json"))
    assert content["pruned"]["latency_ms"]["p50"] == 1.0


def test_a_missed_result_is_shown_and_exits_with_3(catro, the_run):
    result = catro("run", "--budget", "0.5x", "--max-drop", "1", "--json")
    assert result.exit_code == 3
    assert document(result)["accuracy_drop_points"] == 2.0
    assert result.stderr.rstrip().endswith("Pruning cost 2.0 points.\nSee verify.json.")
    assert diary(RunFolder(the_run()))[-1] == "report"
    again = catro("verify")
    assert again.exit_code == 3
    assert "98.00%" in again.stdout


def test_a_budget_that_no_network_meets_is_stated_as_json(catro, monkeypatch):
    monkeypatch.setenv("QUICK_FAIL", "prune:missed")
    result = catro("run", "--json", "--run", "here")
    assert result.exit_code == 3
    assert document(result) == {"run": "here", "missed": "No network meets the budget 0.01x.", "hint": "Allow more."}
    assert catro("run", "--run", "here").stdout == ""


def test_a_loss_without_a_budget_is_searched(catro, the_run):
    assert catro("run", "--max-drop", "3").exit_code == 0
    assert the_run().name.startswith("x86-cpu-all-auto-")
    assert diary(RunFolder(the_run()))[:2] == ["search", "prune"]
    assert document(catro("finetune", "--json", "--epochs", "4"))["epochs"][-1]["epoch"] == 4
    assert document(catro("prune", "--json", "--run", str(the_run())))["budget"] == "0.354x"


def test_a_search_is_refused_without_a_loss(catro, folder):
    refused = catro("run", "--budget", "auto")
    assert refused.exit_code == 2
    assert "--max-drop" in refused.stderr
    assert not (folder / "runs").exists()


def test_force_runs_a_step_again(catro, the_run):
    catro("run")
    assert catro("bench", "--force").exit_code == 0
    assert diary(RunFolder(the_run())).count("bench") == 2


def test_run_trains_a_missing_baseline_if_settings_say_how(catro, folder):
    (folder / "model.pth").unlink()
    refused = catro("run")
    assert refused.exit_code == 2
    assert "There is no checkpoint" in refused.stderr
    with (folder / "catro.toml").open("a") as file:
        file.write("[train]\nepochs = 4\n")
    assert catro("run").exit_code == 0
    assert (folder / "model.pth").read_text() == "trained 4 epochs"


def test_no_baseline_is_trained_for_a_variant_that_no_search_has_numbered(catro, folder):
    (folder / "model.pth").unlink()
    with (folder / "catro.toml").open("a") as file:
        file.write("[train]\nepochs = 4\n")
    refused = catro("run", "--budget", "0.5x", "--search", "--take", "2")
    assert refused.exit_code == 2
    assert "There is no variant 2 yet" in refused.stderr
    assert not (folder / "model.pth").exists()


def test_train_makes_the_checkpoint_that_is_asked_for(catro, folder):
    assert catro("train", "--epochs", "2", "--checkpoint", "new.pth").exit_code == 0
    assert (folder / "new.pth").read_text() == "trained 2 epochs"
    assert catro("train", "--checkpoint", "other.pth").exit_code == 0
    assert (folder / "other.pth").read_text() == "trained 40 epochs"


@pytest.mark.parametrize("step", ["finetune", "report"])
def test_without_a_run_the_first_command_is_named(catro, step):
    result = catro(step)
    assert result.exit_code == 2
    assert "catro-deploy prune" in result.stderr


def test_a_folder_without_a_run_is_refused(catro, folder):
    result = catro("bench", "--run", "nowhere")
    assert result.exit_code == 2
    assert "nowhere is not a run folder" in result.stderr
    assert not (folder / "nowhere").exists()


def test_a_failed_start_does_not_become_the_newest_run(catro):
    catro("prune", "--budget", "30%flops")
    assert catro("prune", "--classes", "no_such_class").exit_code == 2
    assert "30pct" in catro("finetune").stderr


SHIPPED = (
    "ship: {run}/ship/pruned.onnx (fp32, 1.5 kB; the original: ",
    "input: image, float32 1x3x32x32 NCHW",
    "outputs: 0 a, 1 b",
)


@pytest.mark.parametrize("commands", [("run",), ("prune", "finetune", "export"), ("run", "ship")])
def test_what_to_ship_is_printed_last(catro, the_run, commands):
    for command in commands:
        result = catro(command)
    last = result.stdout.splitlines()[-3:]
    run = the_run().relative_to(the_run().parents[1])
    for line, expected in zip(last, SHIPPED, strict=True):
        assert line.startswith(expected.format(run=run))


def test_quantize_refuses_a_request_for_no_precision(catro, folder):
    assert catro("prune", "--run", "here").exit_code == 0
    before = (folder / "here" / "run.toml").read_text()
    for given in (("--precision", "target"), ("-o", "quantize.precision=target")):
        refused = catro("quantize", "--run", "here", *given)
        assert refused.exit_code == 2
        assert "Name it: --precision fp32; or leave --precision out to try all." in " ".join(refused.stderr.split())
    assert (folder / "here" / "run.toml").read_text() == before


def test_what_to_ship_is_printed_after_quantize_and_not_by_export_before_it(catro):
    catro("run", "--precision", "auto")
    assert "ship: " not in (exported := catro("export", "--opset", "19")).stdout
    assert "the file to ship, is decided by: catro-deploy quantize" in exported.stderr
    quantized = catro("quantize")
    assert quantized.stdout.splitlines()[-1] == "outputs: 0 a, 1 b"
    again = catro("quantize", "--json")
    assert document(again)["ship"]["classes"] == ["a", "b"]
    assert "settings are those of" not in again.stderr
