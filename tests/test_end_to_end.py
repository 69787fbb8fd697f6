"""``catro-deploy run`` in a separate process, from nothing to the reports; also stopped and run again."""

import itertools
import json
import random
import re
import shutil
import signal
import time

import onnx
import pytest
import torch

import catro_deploy
from catro_deploy.files import file_hash
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.models.saved import save_network
from catro_deploy.pruning import finding
from catro_deploy.records import Finetune
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load
from catro_deploy.stages import finetune as finetune_stage
from tests.forked import Forked
from tests.tiny import CLASSES, SIZE, Blocks, command, exit_code_of

pytestmark = pytest.mark.slow


def report_size(run):
    return f"{run.onnx('pruned', 'fp16').stat().st_size / 1000:,.1f} kB; the original: "


STAGES = ("prune", "finetune", "export", "verify", "bench", "report")
EPOCHS = 30
RUNS = 10
"""Number of runs that are stopped at random moments, twice each."""
# Little enough that fine-tuning improves the network, so that the weights depend on how it was resumed.
TRAIN = "\n[train]\nepochs = 20\nbatch_size = 16\nlearning_rate = 0.0003\ncompute = 'cpu'\n"
SAME = (
    "plan.json",
    "original.safetensors",
    "pruned.safetensors",
    "weights.safetensors",
    "original.onnx",
    "pruned.onnx",
)
NETWORK = {"accuracy", "macs", "params", "latency_ms"}

# Text logged just before or during a stage, or the file that training writes each epoch.
TUNING = "runs/*/finetune.resume.safetensors"
MOMENTS = (
    "tiny.resume.safetensors",
    "run folder:",
    TUNING,
    "finetune: ",
    "export: done",
    "verify: ",
    "bench: done",
)


def finish(folder, epochs=EPOCHS):
    """Run to the end and return stdout and stderr."""
    process = begin(folder, epochs)
    assert process.end() == exit_code_of(the_run(folder).path), process.stderr()
    return process.stdout(), process.stderr()


def the_run(folder):
    (path,) = (folder / "runs").iterdir()
    return RunFolder(path)


def hashes(folder):
    run = the_run(folder)
    return {name: file_hash(run.path / name) for name in SAME}


def begin(folder, epochs=EPOCHS):
    return Forked("run", "--epochs", str(epochs), cwd=folder, output=folder.with_name("said"))


def stop(folder, moment, code):
    """Start a run, send it the signal ``code`` at ``moment``, and return its stderr and exit code."""
    process = begin(folder)
    if "safetensors" in moment:
        process.wait_until(lambda said: any(folder.glob(moment)))
    else:
        process.wait_until(lambda said: f"\n{moment}" in f"\n{said}")
    ended = process.end(code)
    return process.stderr(), ended


@pytest.fixture(scope="module")
def untrained(tiny_template, tmp_path_factory):
    """A working folder whose baseline has yet to be trained."""
    folder = tmp_path_factory.mktemp("untrained") / "work"
    shutil.copytree(tiny_template, folder)
    (folder / "tiny.safetensors").unlink()
    with (folder / "catro.toml").open("a") as file:
        file.write(TRAIN)
    return folder


@pytest.fixture(scope="module")
def unbroken(untrained, tmp_path_factory):
    """The working folder after an uninterrupted run."""
    folder = tmp_path_factory.mktemp("unbroken") / "work"
    shutil.copytree(untrained, folder)
    stdout, stderr = finish(folder)
    assert "report.html" in stdout
    assert [stage for stage in STAGES if f"{stage}: done in" in stderr] == list(STAGES)
    assert not load(Finetune, the_run(folder)).discarded, stderr
    return folder


def test_the_report_holds_what_was_promised(unbroken):
    report = json.loads(the_run(unbroken).report("json").read_text())
    assert {
        "target",
        "classes",
        "budget",
        "original",
        "pruned",
        "speedup",
        "accuracy_drop_points",
        "environment",
    } <= set(report)
    for network in ("original", "pruned"):
        assert set(report[network]) >= NETWORK
        assert set(report[network]["latency_ms"]) >= {"p50", "p90", "p99"}
        assert 0 <= report[network]["accuracy"] <= 1
    assert set(report["speedup"]) == {"median", "ci95"}
    assert report["pruned"]["accuracy"] == 1.0
    assert report["pruned"]["macs"] <= 0.5 * report["original"]["macs"]


def test_the_onnx_file_says_what_its_user_must_know(unbroken):
    run = the_run(unbroken)
    model = onnx.load(run.pruned_onnx)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["classes"]) == list(CLASSES)
    assert json.loads(metadata["mean"]) == [0.5, 0.5, 0.5]
    assert metadata["plan_sha256"] == file_hash(run.plan)


@pytest.mark.parametrize("codes", [(signal.SIGINT, signal.SIGTERM, signal.SIGHUP), (signal.SIGKILL,)], ids=str)
def test_stopped_in_every_stage_it_ends_as_an_uninterrupted_run(untrained, unbroken, tmp_path, monkeypatch, codes):
    folder, temporary = tmp_path / "work", tmp_path / "temporary"
    shutil.copytree(untrained, folder)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    for moment, code in zip(MOMENTS, itertools.cycle(codes), strict=False):
        said, ended = stop(folder, moment, code)
        assert "Traceback" not in said
        stopped = -code if code == signal.SIGKILL else 128 + code
        # The last stage may have finished before the signal arrived.
        assert ended == stopped or (moment == MOMENTS[-1] and ended == 0), said
        if ended == 128 + code:
            assert said.endswith("the same command continues from there.\n")
            assert not list(temporary.iterdir())
            assert not list(folder.rglob(".images.npy"))
    _, stderr = finish(folder)
    assert hashes(folder) == hashes(unbroken)
    assert "finetune: unchanged, skipped" in stderr
    assert not list(the_run(folder).path.glob("*.part")) + list(the_run(folder).path.glob(".*.part"))


def seconds_of(folder):
    """Seconds that an uninterrupted run takes from its first output."""
    process = begin(folder)
    process.wait_until(bool)
    began = time.monotonic()
    assert process.end() == exit_code_of(the_run(folder).path), process.stderr()
    return time.monotonic() - began


def is_stopped_after(folder, seconds, code):
    """Run, send the signal ``code`` after ``seconds``, and return whether it arrived before the end."""
    process = begin(folder)
    process.wait_until(bool)
    time.sleep(seconds)
    ended, stopped = process.end(code), -code if code == signal.SIGKILL else 128 + code
    assert "Traceback" not in process.stderr()
    assert ended in (stopped, 0, 3), process.stderr()
    return ended == stopped


def test_stopped_at_random_moments_it_ends_as_an_uninterrupted_run(untrained, unbroken, tmp_path):
    """Each run is stopped twice, by both signals in turn: anywhere in a whole run, then in the rest of it."""
    shutil.copytree(untrained, tmp_path / "whole")
    whole, generator, stopped = seconds_of(tmp_path / "whole"), random.Random(0), 0
    for number in range(RUNS):
        folder = tmp_path / str(number)
        shutil.copytree(untrained, folder)
        codes = (signal.SIGTERM, signal.SIGKILL) if number % 2 else (signal.SIGKILL, signal.SIGTERM)
        first = whole * (number // 2 + generator.random()) / (RUNS // 2)
        second = generator.uniform(0, whole - first)
        stopped += sum(is_stopped_after(folder, *moment) for moment in zip((first, second), codes, strict=True))
        finish(folder)
        assert hashes(folder) == hashes(unbroken)
    assert stopped >= RUNS // 2  # of twice RUNS; the duration of a run varies


def test_a_killed_fine_tuning_resumes_from_its_last_epoch(unbroken, tmp_path):
    folder = tmp_path / "work"
    shutil.copytree(unbroken, folder)
    shutil.rmtree(folder / "runs")
    _, ended = stop(folder, TUNING, signal.SIGKILL)
    assert ended == -signal.SIGKILL
    _, stderr = finish(folder)
    assert re.search(rf"resuming after epoch [1-9]\d* of {EPOCHS}", stderr)
    assert hashes(folder)["weights.safetensors"] == hashes(unbroken)["weights.safetensors"]


def test_loaded_from_the_run_folder_it_computes_the_same_to_the_bit_as_in_memory(tiny, monkeypatch):
    in_memory = []

    def remember(network, input_shape, path, plan):
        in_memory.append(network)
        save_network(network, input_shape, path, plan)

    monkeypatch.setattr(finetune_stage, "save_network", remember)
    assert command("prune", "--run", "mine").exit_code == 0
    assert command("finetune", "--run", "mine").exit_code == 0
    images = torch.randn(4, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(catro_deploy.load("mine")(images), in_memory[0].eval()(images))


def test_a_second_run_does_nothing_and_other_epochs_only_what_follows(unbroken):
    _, stderr = finish(unbroken)
    assert "done in" not in stderr
    before = hashes(unbroken)
    _, stderr = finish(unbroken, epochs=2)
    assert "prune: unchanged, skipped" in stderr
    assert [stage for stage in STAGES if f"{stage}: done in" in stderr] == list(STAGES[1:])
    changed = {name for name, found in hashes(unbroken).items() if found != before[name]}
    assert changed == {"weights.safetensors", "pruned.onnx"}


@pytest.fixture
def with_blocks(tiny, monkeypatch):
    """A working folder whose network has branches; candidates are timed only briefly."""
    save_weights(Blocks(3), tiny / "blocks.safetensors")
    monkeypatch.setattr(finding, "CANDIDATES", "./moment.toml")
    return ("run", "--model", "tests.tiny:blocks", "--checkpoint", "blocks.safetensors")


def test_a_budget_of_latency_from_the_profile_to_the_report(tiny, with_blocks):
    done = command(*with_blocks, "--budget", "0.7x")
    assert done.exit_code == exit_code_of(the_run(tiny).path), done.stderr
    said = [done.stderr.index(words) for words in ("round 1: ", "prune: done", "finetune: done", "report: done")]
    assert said == sorted(said)
    run = the_run(tiny)
    assert run.path.name.startswith("x86-cpu-all-0.7x-")
    report = json.loads(run.report("json").read_text())
    assert report["budget"] == "0.7x"
    assert report["latency_plan"]["how"] == "measured"
    assert sum(one["taken"] for one in report["latency_plan"]["rounds"]) == 1
    network = catro_deploy.load(run.path)
    assert network(torch.zeros(1, 3, SIZE, SIZE)).shape == (1, 3)
    again = command(*with_blocks, "--budget", "0.7x")
    assert "done in" not in again.stderr


def test_for_a_device_elsewhere_there_is_a_report_of_estimates(tiny, with_blocks):
    done = command(*with_blocks, "--target", "jetson-orin", "--budget", "0.7x")
    assert done.exit_code == 0, done.stderr
    assert "build, verify and bench: left out, jetson-orin cannot be reached from here" in done.stderr
    run = the_run(tiny)
    report = json.loads(run.report("json").read_text())
    assert report["latency_plan"]["how"] == "estimate"
    assert (report["latency_plan"]["rounds"], report["speedup"]) == ([], None)
    assert run.pruned_onnx.is_file()
    assert not run.bench.exists()
    before, after = report["original_validation_accuracy"], report["validation_accuracy"]
    assert f"{before:.2%}" in done.stdout
    assert f"{after:.2%}" in done.stdout
    assert "NOT CHECKED on jetson-orin" in done.stdout.splitlines()[-4]
    assert "/ship/pruned.fp16.onnx (fp16, " + report_size(run) in done.stdout.splitlines()[-3]
    for stage in ("verify", "bench"):
        refused = command(stage)
        assert refused.exit_code == 2
        assert f"{stage} cannot run on jetson-orin" in refused.stderr
    assert "report: unchanged, skipped" in command("report").stderr
