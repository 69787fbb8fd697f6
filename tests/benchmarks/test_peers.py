"""torch-pruning at our widths, and the inputs of its importances."""

import json

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from benchmarks import peers
from benchmarks.accuracy.reconstruction_rows import PEERS
from benchmarks.peers import gradients_of, peer_network, prune_by_peer, prune_to_widths
from benchmarks.timed_widths import TimedWidths
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import load_settings
from tests.tiny import TinyNet


@pytest.mark.parametrize("inner", [1, 5, 9, 12])
@pytest.mark.parametrize("importance", ["FPGMImportance", "GroupMagnitudeImportance"])
def test_each_group_keeps_as_many_channels_as_requested(tiny, importance, inner):
    settings, run = load_settings(tiny / "catro.toml", {}), RunFolder(tiny / "peer")
    widths = {"conv1": inner, "conv2": 7, "fc": 3}
    plan = prune_to_widths(settings, run, importance, widths)
    assert {group.name: len(group.kept) for group in plan.groups} == widths
    first, second = 8 * 8 * 3 * 9 * inner, 8 * 8 * 9 * (inner * 7 + 7 * 7)
    assert plan.pruned_macs == first + second + 7 * 3
    assert run.pruned_weights.is_file()


def test_the_widths_with_most_multiply_accumulates_that_meet_the_budget_are_taken(tiny, monkeypatch):
    """At a ratio of 0.475, 6 and 8 channels are kept, or 12 (not a multiple of 8) and 8. Both meet the budget."""
    monkeypatch.setattr(peers, "STEP", 0.475)
    settings = load_settings(tiny / "catro.toml", {"prune": {"budget": "0.5x"}})
    timed, times = TimedWidths(tiny / "widths.json"), {"quick": [], "standard": [[40.0, 100.0]] * 2}
    timed.file.write_text(json.dumps({"6 8 3": times, "12 8 3": times}))
    widths = {}
    for round_to in ((None,), (None, 8), (8, None)):
        plan = prune_by_peer(settings, RunFolder(tiny / "peer"), round_to, timed)
        widths[round_to] = [len(group.kept) for group in plan.groups]
    assert widths == {(None,): [6, 8, 3], (None, 8): [12, 8, 3], (8, None): [12, 8, 3]}


def batches():
    images = torch.randn(3, 5, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return [(one, label) for label, one in enumerate(images)]


def tiny_net():
    torch.manual_seed(0)
    return TinyNet(3).eval()


@pytest.mark.parametrize("importance", PEERS.values())
def test_every_importance_prunes_all_groups_by_the_ratio_reproducibly(importance):
    model = tiny_net()
    network, gradients = trace(model, (3, 16, 16)), gradients_of(model, importance, batches())
    cut, groups = peer_network(model, network, 0.5, None, importance, gradients=gradients)
    assert {group.name: len(group.kept) for group in groups} == {"conv1": 6, "conv2": 8, "fc": 3}
    assert cut(torch.zeros(1, 3, 16, 16)).shape == (1, 3)
    assert peer_network(model, network, 0.5, None, importance, gradients=gradients)[1] == groups


def single_gradients(model):
    """Gradients of each image's cross entropy, computed in another way: parameter -> image -> gradient."""
    weights = {name: value.detach() for name, value in model.named_parameters()}
    statistics = dict(model.named_buffers())

    def loss(parameters, image, label):
        prediction = functional_call(model, (parameters, statistics), (image[None],))
        return nn.functional.cross_entropy(prediction, label[None])

    images = torch.cat([one for one, _ in batches()])
    labels = torch.arange(3).repeat_interleave(5)
    return vmap(grad(loss), in_dims=(None, 0, 0))(weights, images, labels).values()


def test_the_hessians_diagonal_is_the_mean_of_squares_over_single_images():
    model = tiny_net()
    expected = [single.square().mean(0) for single in single_gradients(model)]
    torch.testing.assert_close(gradients_of(model, "GroupHessianImportance", batches()), expected)


def test_taylors_gradients_are_the_sum_of_the_batches_means():
    model = tiny_net()
    expected = [single.unflatten(0, (3, 5)).mean(1).sum(0) for single in single_gradients(model)]
    torch.testing.assert_close(gradients_of(model, "GroupTaylorImportance", batches()), expected)
