"""Reconstruction of pruned networks: never worse than the cut alone."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import catro_deploy
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.progress import Silent
from catro_deploy.reconstruction import reconstructor
from catro_deploy.reconstruction.images import split_images
from catro_deploy.reconstruction.loss import divergence
from catro_deploy.reconstruction.reconstructor import FULL, SCREENING, Reconstructor
from catro_deploy.settings import PruneSettings
from tests.reconstruction.networks import KINDS, SHAPE, Stream, calibrated, images, keeps_for, outputs


def reconstructor_of(model: nn.Module, count: int = 160, **settings: object) -> Reconstructor:
    return Reconstructor(model, trace(model, SHAPE), images(count), PruneSettings(**settings), Silent())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_come_closer_to_the_originals(kind, seed):
    model = calibrated(KINDS[kind], seed)
    keeps = keeps_for(model, seed)
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    found, record = reconstructor_of(model).reconstructed(pruned, keeps, ())
    new = images(100, seed=9)
    before, after = divergence(model, pruned, new), divergence(model, found, new)
    assert record.kl_reconstructed <= record.kl_cut
    _, held_out = split_images(images(160))
    assert record.kl_reconstructed == pytest.approx(divergence(model, found, held_out), rel=0.01, abs=1e-9)
    assert record.kl_cut == pytest.approx(divergence(model, pruned, held_out), rel=0.01, abs=1e-9)
    assert after < 1.1 * before  # a cut that hardly hurts leaves nothing to gain
    assert set(record.explained) & set(record.left) == set()


def test_the_given_networks_stay_as_they_are():
    model = calibrated(Stream)
    keeps = keeps_for(model)
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    states = [copy.deepcopy(one.state_dict()) for one in (model, pruned)]
    found, _ = reconstructor_of(model).reconstructed(pruned, keeps, ())
    for one, state in zip((model, pruned), states, strict=True):
        assert all(torch.equal(state[name], value) for name, value in one.state_dict().items())
    assert list(found.state_dict()) == list(states[1])
    assert not torch.equal(found.fc.weight, pruned.fc.weight)


@pytest.mark.parametrize("kl", [(0.1, 0.2), (0.1, 0.1), (0.1, float("nan"))])
def test_where_that_takes_outputs_further_away_the_cuts_weights_stay(monkeypatch, kl):
    model = calibrated(Stream)
    keeps = keeps_for(model)
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    values = iter(kl)
    monkeypatch.setattr(reconstructor, "divergence_from", lambda *_: next(values))
    found, record = reconstructor_of(model).reconstructed(pruned, keeps, ())
    assert (record.kl_cut, record.kl_reconstructed) == (0.1, 0.1)
    assert all(torch.equal(pruned.state_dict()[name], value) for name, value in found.state_dict().items())


def test_the_same_seed_finds_the_same_weights():
    model = calibrated(Stream)
    keeps = keeps_for(model)
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    one, other = (reconstructor_of(model).reconstructed(pruned, keeps, ())[0] for _ in range(2))
    assert torch.equal(outputs(one, images(8)), outputs(other, images(8)))


def test_groups_that_nothing_mixes_are_not_followed():
    keeper = reconstructor_of(calibrated(Stream), criterion="obs")
    by_name = {group.name: group for group in keeper.network.groups}
    assert keeper.follows(by_name["stem"])
    assert not keeper.follows(by_name["fc"])
    assert keeper.kept(by_name["fc"], 2) is None
    assert len(keeper.kept(by_name["stem"], 2)) == 2


def test_losses_are_of_the_groups_that_have_candidates():
    keeper = reconstructor_of(calibrated(Stream), 60)
    losses = keeper.losses({"stem": (2, 6), "in1": (5,)}, ())
    assert set(losses.widths) == {"stem", "in1"}
    assert losses.widths["stem"][2] > losses.widths["stem"][6] == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("options", [{}, {"worth": "measured"}, {"criterion": "obs"}, {"criterion": "l1"}])
def test_on_a_gpu_it_finds_what_it_finds_on_a_cpu(options):
    batches = [(images(32, seed)[0] + seed / 4, torch.full((32,), seed)) for seed in range(4)]
    found = [
        catro_deploy.prune(calibrated(Stream), batches, budget="60%flops", compute=compute, **options)
        for compute in ("cpu", "cuda")
    ]
    one, other = (record.plan.reconstruction for record in found)
    assert list(one.explained) == list(other.explained)
    assert other.kl_reconstructed == pytest.approx(one.kl_reconstructed, rel=0.2)


class Titles(Silent):
    """Records the titles and totals of the tasks."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def task(self, title, total, done=0):
        self.seen[title] = total
        return super().task(title, total, done)


def test_what_was_measured_of_a_network_is_not_measured_again():
    model = calibrated(Stream)
    first = reconstructor_of(model)
    groups = [group for group in first.network.groups if first.follows(group)]
    branches = find_branches(model, first.network)
    few, more = ({group.name: range(least, group.width + 1) for group in groups} for least in (2, 1))
    losses = first.losses(few, branches)
    titles = Titles()
    again = replace(reconstructor_of(model), measurements=first.measurements, progress=titles)
    assert again.losses(few, branches[:1]).widths == losses.widths
    assert all(again.kept(group, 2) == first.kept(group, 2) for group in groups)
    assert titles.seen == {"Measuring the worth of widths": 0}
    alone = reconstructor_of(model)
    separate, together = alone.losses(more, branches), again.losses(more, branches)
    assert titles.seen["Measuring the worth of widths"] == len(groups)
    assert together.branches == separate.branches
    measured = again.measurements.width_losses
    for name, width in alone.measurements.width_losses.keys() & measured.keys():
        assert together.widths[name][width] == separate.widths[name][width] == measured[name, width]


def test_a_joint_loss_is_the_divergence_from_the_given_reference():
    model, other = calibrated(Stream), calibrated(Stream, seed=1)
    keeper = reconstructor_of(model)
    full = {group.name: group.width for group in keeper.network.groups}
    assert keeper.loss_at(full, ()) == pytest.approx(0.0, abs=1e-9)
    assert keeper.loss_from(other, full, ()) == pytest.approx(divergence(other, model, split_images(images(160))[1]))
    narrow = full | {"stem": 2}
    assert keeper.loss_at(narrow, ()) == keeper.loss_from(keeper.graph.module, narrow, ()) > 0


def test_for_screening_a_joint_loss_is_measured_on_half_of_the_images(monkeypatch):
    monkeypatch.setattr(reconstructor, "images_within", lambda macs, passes: int(10_000 / passes))
    counts = {}
    for effort in (FULL, SCREENING):
        keeper = replace(reconstructor_of(calibrated(Stream), 800), effort=effort)
        counts[effort] = [sum(map(len, part)) for part in keeper._few_images]
    assert counts == {FULL: [476, 119], SCREENING: [236, 59]}
