"""Screening: the divergence that a variant would have, without exporting or timing it."""

from dataclasses import replace

import pytest

from catro_deploy.latency.candidate import CandidateTimer
from catro_deploy.progress import Silent
from catro_deploy.pruning.shared import Shared
from catro_deploy.records import Screened
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load
from catro_deploy.settings import Settings
from catro_deploy.stages.prune import prune
from catro_deploy.stages.screening import Screening, _screened
from tests.tiny import SIZE

pytestmark = pytest.mark.usefixtures("short_trials")


@pytest.fixture
def settings(folder):
    """Make settings; keywords go into [prune]."""

    def make(precision="target", **pruning):
        return Settings.model_validate(
            {
                "model": {"name": "tests.tiny:blocks", "checkpoint": folder / "blocks.safetensors"},
                "data": {"name": "tests.tiny:dataset", "size": SIZE},
                "prune": {"samples_per_class": 16, "compute": "cpu", "budget": "0.6x"} | pruning,
                "quantize": {"precision": precision},
                "profile": {"protocol": str(folder / "few.toml")},
            }
        )

    return make


@pytest.fixture
def shared():
    return Shared()


@pytest.fixture
def screen(tmp_path, settings, shared):
    """Screen variants of one search, each in a folder of its own."""
    measure = Screening(settings(), shared, ())._measure()

    def screened(changes=None, **chosen):
        folder = RunFolder(tmp_path / "-".join(map(str, chosen.values())))
        return _screened(changes or {}, settings(**chosen), folder, measure), folder

    return screened


def test_a_smaller_budget_is_further_from_the_original(screen):
    found = [screen(budget=budget)[0].kl_nats for budget in ("70%flops", "40%flops", "20%flops")]
    assert 0 < found[0] < found[1] < found[2]


def test_a_size_is_compared_with_the_predictions_at_the_original_size(screen):
    """A budget that the unpruned network meets at 8x8: what it then predicts differs only by the size."""
    assert screen(budget="1x", input_size=8)[0].kl_nats > screen(budget="1x", input_size=14)[0].kl_nats > 1e-4


def test_what_was_found_is_kept(screen):
    changes = {"prune.depth": "never"}
    found, folder = screen(changes, depth="never")
    assert load(Screened, folder) == found
    assert (found.changes, found.seconds > 0) == (changes, True)
    assert screen(changes, depth="never")[0] == found  # the seconds would differ if it had been computed again


@pytest.fixture
def timed(monkeypatch):
    """One entry for each network that is timed, and the machine is always quiet."""
    return counted(monkeypatch, lambda number: False)


def counted(monkeypatch, is_disturbed):
    """One entry for each network that is timed; ``is_disturbed`` says of each number whether it was disturbed."""
    found, measure = [], CandidateTimer.measure

    def measured(self, network, **how):
        found.append(1)
        return replace(measure(self, network, **how), disturbed=is_disturbed(len(found)))

    monkeypatch.setattr(CandidateTimer, "measure", measured)
    return found


def test_networks_are_timed_once_for_each_size(screen, timed, shared):
    for depth in ("auto", "never"):
        assert screen(depth=depth)[0].kl_nats > 0
    assert timed == []  # the profile tells how long the original takes
    for worth in ("measured", "scatter"):
        screen(input_size=12, worth=worth)
    assert len(timed) == 2  # unpruned and narrow
    (reference,) = shared.repetitions.values()  # for all later measurements against this original
    assert reference.fastest_original_us.keys() == {50}
    assert reference.fastest_original_us[50] > 0


def test_screening_repeats_no_disturbed_measurement_but_pruning_does(screen, tmp_path, settings, shared, monkeypatch):
    timed = counted(monkeypatch, lambda number: number <= 2)
    for worth in ("measured", "scatter"):
        screen(input_size=12, worth=worth)
    assert len(timed) == 2
    smaller = settings(input_size=12)
    plan = prune(smaller, RunFolder(tmp_path / "pruned"), Silent(), shared=shared)
    assert len(timed) == 2 + 2 + len(plan.latency.rounds)
    screen(input_size=12, depth="never")
    assert len(timed) == 2 + 2 + len(plan.latency.rounds)


@pytest.mark.slow
def test_networks_are_timed_once_for_each_precision(screen, timed):
    for worth in ("measured", "scatter"):
        screen(input_size=12, worth=worth, precision="int8")
    assert len(timed) == 3  # unpruned, narrow, and unpruned at the original size


@pytest.mark.slow
def test_what_corrects_predictions_for_a_size_corrects_them_in_int8_unless_it_is_pruned(
    screen, timed, tmp_path, settings, shared
):
    screen(input_size=12)
    screen(precision="int8")
    assert len(timed) == 2 + 1
    assert screen(input_size=12, worth="scatter", precision="int8")[0].kl_nats > 0
    assert len(timed) == 2 + 1
    smaller = settings(input_size=12, precision="int8")
    plan = prune(smaller, RunFolder(tmp_path / "pruned"), Silent(), shared=shared)
    assert len(timed) == 2 + 1 + 2 + len(plan.latency.rounds)


def test_where_no_network_is_predicted_to_meet_the_budget_nothing_is_found(screen):
    assert screen(budget="0.001x")[0].kl_nats is None


def test_without_reconstruction_nothing_is_found(screen):
    assert screen(reconstruct=False)[0].kl_nats is None
