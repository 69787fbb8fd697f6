"""``profile``, and ``prune`` with a latency budget, with real stages and a small network."""

import json
import signal

import pytest

from catro_deploy.latency.profile import measuring
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.pruning import finding
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.transports import run_job
from tests.forked import Forked
from tests.tiny import Blocks, command

NETWORK = ("--model", "tests.tiny:blocks", "--checkpoint", "blocks.safetensors")
FIGURES = {"within_5", "within_10", "rmspe", "spearman"}


@pytest.fixture
def folder(tiny, monkeypatch):
    """A working folder with a checkpoint of Blocks; candidates are timed only briefly."""
    save_weights(Blocks(3), tiny / "blocks.safetensors")
    monkeypatch.setattr(finding, "CANDIDATES", "./moment.toml")
    return tiny


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty folder for profiles."""
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "latency"


def refused(result, code, *said):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for part in said:
        assert part in result.stderr.replace("\n", " "), result.stderr


@pytest.mark.slow
def test_a_profile_is_shown_and_found_again(folder):
    first = command("profile", *NETWORK, "--target", "x86-cpu")
    assert first.exit_code == 0, first.stderr
    assert first.stderr.startswith("images 16x16\n")
    for part in ("channels of", "one_in", "two_in", "stem", "1 thread, batch 1", "RMSPE", "Spearman", "onnxruntime"):
        assert part in first.stdout
    again = command("profile", *NETWORK, "--json")
    assert "used again" in again.stderr
    content = json.loads(again.stdout)
    assert (content["target"], set(content["staircases"])) == ("x86-cpu", {"stem", "one_in", "two_in"})
    assert set(content["errors"]) >= FIGURES
    assert "cells" not in content
    shown = command("targets", "show", "x86-cpu")
    assert "latency profile, measured:" in shown.stdout
    assert content["measured"] in shown.stdout
    profiles = json.loads(command("targets", "show", "x86-cpu", "--json").stdout)["profiles"]
    assert content["network"] in [profile["network"] for profile in profiles]


@pytest.mark.slow
def test_another_use_has_a_profile_of_its_own(folder, own_cache):
    command("profile", *NETWORK)
    other = command("profile", *NETWORK, "--threads", "2", "--batch", "3")
    assert other.exit_code == 0, other.stderr
    assert "used again" not in other.stderr
    assert "2 threads, batch 3" in other.stdout
    assert len(list(own_cache.glob("x86-cpu-*/profile.json"))) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--target", "jetson-orin"), "profile cannot run on jetson-orin"),
        (("--target", "x86"), "Did you mean x86-cpu?"),
        (("--profile", "quik"), "Did you mean quick?"),
        (("--profile", "./moment.toml"), "moment.toml is not valid"),
        (("--checkpoint", "nothing.safetensors"), "The checkpoint nothing.safetensors cannot be read"),
        (("--threads", "0"), "bench.threads = 0 does not fit"),
    ],
)
def test_what_cannot_be_profiled(folder, own_cache, arguments, said):
    refused(command("profile", *NETWORK, *arguments), 2, said)
    assert not own_cache.exists()


@pytest.mark.slow
def test_pruned_to_a_share_of_the_measured_latency(folder):
    done = command("prune", *NETWORK, "--budget", "0.7x", "--run", "mine")
    assert done.exit_code == 0, done.stderr
    assert "round 1: predicted " in done.stderr
    assert "0.7x" in done.stdout
    plan = load_plan(RunFolder(folder / "mine"))
    assert plan.latency.how == "measured"
    assert min(round_.speedup.ratio for round_ in plan.latency.rounds) <= 0.7
    again = command("prune", "--run", "mine")
    assert "prune: unchanged, skipped" in again.stderr
    assert json.loads(command("prune", "--run", "mine", "--json").stdout)["latency"]["rounds"]


@pytest.mark.parametrize("budget", ["400", "0.5", "50%", "400s", "-1x", "0x", "1.5x", "nanx", "0%flops"])
def test_budgets_in_nonsense_units(folder, budget):
    refused(command("prune", *NETWORK, f"--budget={budget}"), 2, f"The budget '{budget}'", "0.5x")
    assert not (folder / "runs").exists()


def test_a_budget_that_cannot_be_met_exits_with_3_and_names_the_fastest(folder):
    """If the machine's speed has changed since the profile was measured, the message blames the profile instead."""
    result = command("prune", *NETWORK, "--budget", "1us")
    refused(result, 3, "The budget 1us ", "the fastest network", "of the original")
    if "The latency profile may be wrong" in result.stderr:
        refused(result, 3, "was not met", "catro-deploy profile --force")
    else:
        refused(result, 3, "cannot be met", "(measured)", "us or more (--budget)")


def test_without_the_device_half_of_the_estimate_is_the_default(folder):
    own = (folder / "catro.toml").read_text()
    (folder / "catro.toml").write_text(own.replace('budget = "50%flops"\n', ""))
    done = command("prune", *NETWORK, "--target", "jetson-orin", "--classes", "across,down", "--json")
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    latency = content["latency"]
    assert (content["budget"], latency["how"], latency["rounds"]) == ("0.5x", "estimate", [])
    assert latency["predicted_us"] <= 0.5 * latency["original_us"]
    assert "is an estimate" in latency["warnings"][0]


@pytest.mark.slow
def test_a_profile_that_was_stopped_resumes(folder, own_cache, monkeypatch):
    process = Forked("profile", *NETWORK, "--profile", "quick", cwd=folder, output=folder / "said")
    process.wait_until(lambda _: len(lines(own_cache)) > 20)
    assert process.end(signal.SIGINT) == 130, process.stderr()
    assert process.stdout() == ""
    assert process.stderr().endswith("the same command continues from there.\n")
    assert "Traceback" not in process.stderr()
    kept = {json.loads(line)["name"] for line in lines(own_cache)[1:]}
    assert len(kept) >= 20

    asked = []

    def noted(device, job, *more, **options):
        asked.extend(variant.name for variant in job.variants)
        return run_job(device, job, *more, **options)

    monkeypatch.setattr(measuring, "run_job", noted)
    done = command("profile", *NETWORK, "--profile", "quick")
    assert done.exit_code == 0, done.stderr
    assert not kept & set(asked)
    assert not lines(own_cache)


def lines(cache):
    """The complete lines of the samples file so far."""
    found = list(cache.glob("*/samples.jsonl"))
    return found[0].read_text().split("\n")[:-1] if found else []
