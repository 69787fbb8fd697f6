"""Invalid input and internal errors: one clear message, the right exit code, no traceback unless requested."""

import pytest

from catro_deploy.runs.folder import RunFolder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prune", "--budgt", "5%flops"), "--budget"),
        (("prun",), "prune"),
        (("finetune", "--epochs", "many"), "valid integer"),
        (("finetune", "--schedule", "stairs"), "cosine"),
        (("prune", "--budget", "fast"), "50%flops"),
        (("prune", "--budget", "0%flops"), "must be above 0 and"),
        (("prune", "--budget", "1.5x"), "at most what the original uses"),
        (("prune", "--budget", "400"), "400us"),
        (("prune", "--target", "x86"), "Did you mean x86-cpu?"),
        (("prune", "--checkpoint", "missing.pth"), "There is no checkpoint missing.pth"),
        (("prune", "--classes", "no_such_class"), "Did you mean such_class?"),
        (("prune", "--samples-per-class", "1"), "prune.samples_per_class = 1 does not fit"),
        (("prune", "--config", "missing.toml"), "There is no missing.toml"),
        (("bench", "--protocol", "quick"), "There is no finished pruning"),
        (("run", "--protocol", "quik"), "Did you mean quick?"),
        (("targets", "show", "x86"), "Did you mean x86-cpu?"),
    ],
)
def test_wrong_input_exits_with_2_and_says_what_to_do(catro, arguments, message):
    result = catro(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["run", "prune", "profile", "train"])
def test_without_catro_toml_the_way_to_one_is_shown(catro, folder, command):
    (folder / "catro.toml").unlink()
    result = catro(command)
    assert result.exit_code == 2
    assert f"There is no catro.toml here, in {folder}." in result.stderr
    assert "catro-deploy init" in result.stderr


def test_without_catro_toml_flags_can_name_the_model(catro, folder):
    (folder / "catro.toml").unlink()
    assert catro("prune", "--checkpoint", "model.pth").exit_code == 0


def test_the_run_that_is_taken_is_named_with_the_reason(catro, folder, the_run):
    catro("prune")
    said = catro("finetune").stderr
    assert f"no --run given: using runs/{the_run().name}, the only run in runs/" in said
    catro("prune", "--run", "runs/other")
    assert "using runs/other, the newest run in runs/" in catro("finetune").stderr
    assert "no --run given" not in catro("finetune", "--run", "runs/other").stderr


def test_keep_leaves_the_old_report_and_works_in_another_folder(catro, the_run):
    catro("run")
    old = the_run()
    before = {path.name: path.read_bytes() for path in old.iterdir() if path.is_file()}
    said = catro("run", "--epochs", "2", "--keep").stderr
    assert f"run folder: runs/{old.name}-2" in said
    assert "replacing" not in said
    assert {path.name: path.read_bytes() for path in old.iterdir() if path.is_file()} == before
    assert (old.with_name(f"{old.name}-2") / "weights.safetensors").read_text() == "2 epochs"
    said = catro("finetune", "--run", str(old), "--epochs", "1").stderr
    assert "finetune.epochs: 3 -> 1" in said
    assert "out of date afterwards: the results of export, verify, bench, ship, report" in said


def test_a_wrong_key_is_refused_with_the_nearest_name(catro, folder):
    (folder / "catro.toml").write_text("[finetune]\nepocs = 3\n")
    result = catro("run")
    assert result.exit_code == 2
    assert "catro.toml" in result.stderr
    assert "finetune.epocs is not a setting. Did you mean epochs?" in result.stderr


def test_a_fault_leaves_its_traceback_in_the_run_folder(catro, the_run, monkeypatch):
    catro("prune")
    monkeypatch.setenv("QUICK_FAIL", "finetune:fault")
    result = catro("finetune")
    assert result.exit_code == 1
    assert "RuntimeError: a strange thing\nThis is an internal error of catro-deploy." in result.stderr
    assert "Traceback" not in result.stderr
    (file,) = the_run().glob("catro-deploy-fault-*.txt")
    assert str(file.relative_to(the_run().parents[1])) in result.stderr
    assert "a strange thing" in file.read_text()


@pytest.mark.parametrize("debug", [("--debug", "prune"), ("prune", "--debug")])
def test_debug_shows_the_traceback(catro, debug, monkeypatch):
    monkeypatch.setenv("QUICK_FAIL", "prune:fault")
    result = catro(*debug)
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_debug_by_the_environment(catro, monkeypatch):
    monkeypatch.setenv("CATRO_DEBUG", "1")
    assert "Traceback" in catro("prune", "--budget", "fast").stderr


def test_a_refused_file_is_named(catro, monkeypatch):
    monkeypatch.setenv("QUICK_FAIL", "prune:denied")
    result = catro("prune")
    assert result.exit_code == 1
    assert "/data/image.png cannot be accessed: Permission denied." in result.stderr
    assert "internal error of catro-deploy" not in result.stderr


def test_two_runs_in_one_folder(catro, folder):
    catro("prune", "--run", "mine")
    with RunFolder(folder / "mine").lock():
        result = catro("finetune", "--run", "mine")
    assert result.exit_code == 2
    assert "Another catro-deploy is working in mine." in result.stderr
    assert catro("finetune", "--run", "mine").exit_code == 0
