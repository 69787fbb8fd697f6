"""Pruning to a latency budget: on this machine with ONNX Runtime, and for devices that are elsewhere."""

import re

import pytest
import torch

from catro_deploy import networks, resources
from catro_deploy.errors import MissedError, ProfileError, TargetError
from catro_deploy.graph.coupling import trace as trace_module
from catro_deploy.graph.coupling.probe import stubborn
from catro_deploy.graph.coupling.trace import list_layers
from catro_deploy.graph.cut.surgery import masked
from catro_deploy.graph.fx.depth import drop_branches
from catro_deploy.latency import candidate
from catro_deploy.latency.profile import fingerprint, measuring, profiles_of
from catro_deploy.latency.repetition import MEASUREMENTS
from catro_deploy.progress import Silent
from catro_deploy.pruning import classifier
from catro_deploy.records import Budgets, Keep
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages.profile import profile
from catro_deploy.stages.prune import prune
from catro_deploy.transports import run_job
from tests.notes import Notes
from tests.tiny import SIZE
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too

pytestmark = pytest.mark.usefixtures("short_trials")

SHAPE = (3, SIZE, SIZE)
BRANCHES = {"one_out": "one_in", "two_out": "two_in"}  # the last layer of each branch: the group inside it


@pytest.fixture
def settings(folder):
    """Make settings; keywords go into [prune]."""

    def make(**pruning):
        return Settings.model_validate(
            {
                "model": {"name": "tests.tiny:blocks", "checkpoint": folder / "blocks.safetensors"},
                "data": {"name": "tests.tiny:dataset", "size": SIZE},
                "prune": {"samples_per_class": 16, "compute": "cpu"} | pruning,
                "profile": {"protocol": str(folder / "few.toml")},
            }
        )

    return make


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def jobs(monkeypatch):
    """Names of the jobs that the device's agent is given; they still run."""
    given = []

    def noted(device, job, *more, **options):
        given.append(job.NAME)
        return run_job(device, job, *more, **options)

    for module in (measuring, candidate, fingerprint):
        monkeypatch.setattr(module, "run_job", noted)
    return given


def assert_pruned_is_masked(run):
    """Assert that the pruned network computes what the original does without dropped branches and with cuts masked."""
    plan = load_plan(run)
    shallow = drop_branches(networks.load(run, weights="original"), plan.dropped)
    inner = {name: Keep(None if name == plan.head else keep.out, keep.inputs) for name, keep in plan.keeps.items()}
    pruned = networks.load(run, weights="pruned")
    images = torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, found = masked(shallow, inner)(images), pruned(images)
    assert (expected - found).abs().max() <= 1e-5 * expected.abs().max()
    assert sum(layer.macs for layer in list_layers(pruned, SHAPE)) == plan.pruned_macs
    for branch, group in BRANCHES.items():
        left = {name.split(".")[0] for name in pruned.state_dict()}
        assert (branch in plan.dropped) == (group not in left) == (branch not in left)


def test_the_network_is_traced_once(settings, run, monkeypatch):
    """Every trace includes probing; the profile, the branches, the channels and the cut all use the same trace."""
    probed = []

    def counted(model, *given):
        probed.append(given[-1])
        return stubborn(model, *given)

    monkeypatch.setattr(trace_module, "stubborn", counted)
    plan = prune(settings(budget="0.8x", reconstruct=False, ignore=["one_in"]), run, Silent())
    assert probed == [SHAPE]
    assert [group.name for group in plan.groups if group.fixed.endswith("is to be ignored")] == ["one_in"]


def test_a_share_of_the_measured_latency(settings, run):
    notes = Notes()
    plan = prune(settings(budget="0.6x", reconstruct=False), run, notes)
    assert plan == load_plan(run)
    latency = plan.latency
    assert (plan.budget, plan.allocation, latency.how) == ("0.6x", "exact", "measured")
    assert 1 <= len(latency.rounds) <= 4
    widths = {group.name: len(group.kept) for group in plan.groups if not group.fixed}
    widths |= {BRANCHES[branch]: 0 for branch in plan.dropped}
    taken = [round_ for round_ in latency.rounds if round_.taken]
    assert [round_.widths for round_ in taken] == [widths]
    assert taken[0].speedup.ratio == pytest.approx(taken[0].measured_us / taken[0].original_us)
    assert taken[0].speedup.ratio <= 0.6
    for round_ in latency.rounds:
        low, high = round_.speedup.ratio_ci95
        assert 0 < low <= high
        assert round_.predicted_us > 0
    assert set(latency.by_layer) == {"stem", "one_in", "one_out", "two_in", "two_out", "fc"}
    assert all(before > 0 for before, _ in latency.by_layer.values())
    gone = {name for name, (_, after) in latency.by_layer.items() if after == 0}
    assert gone == {layer for branch in plan.dropped for layer in (branch, BRANCHES[branch])}
    assert set(latency.staircases) == {"stem", "one_in", "two_in"}
    assert 1 <= latency.errors.networks <= 4
    assert [line.split(":")[0] for line in notes.lines if line.startswith("round")] == [
        f"round {number + 1}" for number in range(len(latency.rounds))
    ]
    assert_pruned_is_masked(run)


@pytest.mark.slow
def test_a_second_pruning_uses_the_profile_again(settings, run, jobs):
    profile(settings(), Silent())
    jobs.clear()
    notes = Notes()
    plan = prune(settings(budget="0.7x"), run, notes)
    assert "profile" not in jobs
    rounds = len(plan.latency.rounds)
    assert rounds <= jobs.count("bench") <= MEASUREMENTS * rounds
    assert any("used again" in line for line in notes.lines)
    before = plan.latency.staircases
    profile(settings(), Silent(), force=True)
    assert jobs.count("profile") >= 1
    again = prune(settings(budget="0.7x"), run, Silent())
    assert before.keys() == again.latency.staircases.keys()


@pytest.mark.slow
def test_without_depth_all_branches_stay(settings, run):
    plan = prune(settings(budget="0.8x", depth="never", reconstruct=False), run, Silent())
    assert plan.dropped == ()
    assert_pruned_is_masked(run)


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ["greedy", "flops", "uniform"])
def test_other_allocations(settings, run, allocation):
    plan = prune(settings(budget="0.8x", allocation=allocation, reconstruct=False), run, Silent())
    assert plan.allocation == allocation
    assert plan.latency.gap is None
    assert min(round_.speedup.ratio for round_ in plan.latency.rounds) <= 0.8
    if allocation != "greedy":
        assert plan.dropped == ()
    assert_pruned_is_masked(run)


def test_a_budget_that_no_network_meets_is_missed_with_what_was_measured(settings, run):
    """If other work has disturbed the measurements, the hint questions the profile instead of the budget."""
    with pytest.raises(MissedError, match=r"\b1us\b.*\d us\b") as caught:
        prune(settings(budget="1us"), run, Silent())
    assert caught.value.exit_code == 3
    assert re.search(r"us or more \(--budget\)|catro-deploy profile --force", caught.value.hint)
    assert not run.path.exists()


def test_a_damaged_profile_is_refused(settings, run):
    profile(settings(), Silent())
    found = [folder for folder, of in profiles_of("x86-cpu") if "one_in" in of.shapes]
    assert found
    cells = found[0] / "cells.csv"
    whole = cells.read_bytes()
    try:
        cells.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ProfileError, match=r"cells\.csv[\s\S]*catro-deploy profile --force"):
            prune(settings(), run, Silent())
    finally:
        cells.write_bytes(whole)


def test_for_a_device_elsewhere_the_estimate_decides_and_nothing_runs(settings, run, jobs):
    plan = prune(settings(target="jetson-orin", budget="0.8x", reconstruct=False), run, Silent())
    assert jobs == []
    latency = plan.latency
    assert (latency.how, latency.rounds, latency.errors) == ("estimate", (), None)
    assert latency.predicted_us <= 0.8 * latency.original_us == latency.budget_us
    assert "jetson-orin is an estimate" in latency.warnings[0]
    assert_pruned_is_masked(run)


def test_a_device_elsewhere_cannot_be_profiled(settings):
    with pytest.raises(TargetError, match=r"\bprofile\b.*\bjetson-orin\b") as caught:
        profile(settings(target="jetson-orin"), Silent())
    assert caught.value.exit_code == 2


def test_all_that_may_be_pruned_can_be_removed(settings, run):
    """At a budget that only depth can meet, both branches are removed; the stream stays, with no channels to choose."""
    tight = settings(target="jetson-orin", ignore=["stem"], budget="1us", reconstruct=False)
    with pytest.raises(MissedError) as caught:
        prune(tight, run, Silent())
    least = Budgets.parse(caught.value.hint.split("Allow ")[1].split(" ")[0])
    plan = prune(
        tight.model_copy(update={"prune": tight.prune.model_copy(update={"budget": least})}),
        run,
        Silent(),
    )
    assert plan.dropped == ("one_out", "two_out")
    assert [group.name for group in plan.groups if not group.kept] == ["one_in", "two_in"]
    assert all(group.fixed for group in plan.groups if group.kept)
    assert_pruned_is_masked(run)


def test_profiles_lie_in_the_users_cache(settings):
    profile(settings(), Silent())
    assert all(folder.parent == resources.profiles_folder() for folder, _ in profiles_of("x86-cpu"))


def test_what_is_cut_for_latency_is_reconstructed(settings, run):
    plan = prune(settings(target="jetson-orin", budget="0.7x"), run, Silent())
    found = plan.reconstruction
    assert 0 <= found.kl_reconstructed <= found.kl_cut
    assert plan.allocation == "exact"
    assert networks.load(run, weights="pruned")(torch.zeros(2, *SHAPE)).shape == (2, 3)


@pytest.mark.parametrize("criterion", ["catro", "l1"])
def test_without_labels_what_is_left_of_the_network_is_chosen_without_a_look_at_classes(
    settings, run, monkeypatch, criterion
):
    """Without both branches only the stem is left; its one reader, or the channels' norms, rank its channels."""
    monkeypatch.setattr(classifier, "score_channels", None)
    asked = settings(target="jetson-orin", budget="1us", max_width=0.5, criterion=criterion)
    asked = asked.model_copy(update={"data": asked.data.model_copy(update={"name": "tests.tiny:unlabelled"})})
    with pytest.raises(MissedError) as caught:
        prune(asked, run, Silent())
    least = Budgets.parse(caught.value.hint.split("Allow ")[1].split(" ")[0])
    plan = prune(
        asked.model_copy(update={"prune": asked.prune.model_copy(update={"budget": least})}),
        run,
        Silent(),
    )
    assert plan.dropped == ("one_out", "two_out")
    (stem,) = [group for group in plan.groups if not group.fixed and group.kept]
    assert len(stem.kept) <= 16
    assert networks.load(run, weights="pruned")(torch.zeros(2, *SHAPE)).shape == (2, 3)
