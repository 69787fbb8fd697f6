"""Reconstruction: nothing is lost without need, and the pruned network gets the solved weights."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_
from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.reconstruction import solve
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.loss import divergence
from catro_deploy.reconstruction.refit import LEAST_NORM, reconstruct_, write_back_
from catro_deploy.reconstruction.steps import steps_of
from catro_deploy.reconstruction.suffix import Suffix
from catro_deploy.records import Keep
from tests.graph.networks import randomised
from tests.reconstruction.networks import (
    KINDS,
    SHAPE,
    Stream,
    calibrated,
    deviation,
    images,
    keeps_for,
    outputs,
    pooled,
    solved,
    with_copies,
)


@contextmanager
def hardly_any_ridge() -> Iterator[None]:
    """The usual ridge pulls towards the old weights: with it, a copy is made up for only to one part in a thousand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solve, "RIDGE", 1e-9)
        patch.setattr(solve, "SCARCITY", 0.0)
        yield


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 10_000))
def test_nothing_is_lost_with_channels_of_which_copies_stay(kind, seed):
    model, keeps = with_copies(KINDS[kind], seed)
    with hardly_any_ridge():
        found = solved(model, keeps, images(dtype=torch.float64), dtype=torch.float64)
    expected = outputs(model, images())
    assert deviation(outputs(found.after.module, images(dtype=torch.float64)), expected) < 1e-4
    assert deviation(outputs(found.model, images()), expected) < 1e-4


class Linear(nn.Module):
    """Convolutions without activations; ``how`` selects the second one."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.first_bn = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.second = {
            "plain": nn.Conv2d(6, 5, 3, stride=2, padding=1),
            "pointwise": nn.Conv2d(6, 5, 1),
            "transposed": nn.ConvTranspose2d(6, 5, 3, stride=2),
        }[how]
        self.fc = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.second(self.first_bn(self.first(x)))).mean((2, 3)))


@pytest.mark.parametrize("how", ["plain", "pointwise", "transposed"])
def test_nothing_is_lost_with_a_channel_that_is_the_sum_of_others(how):
    model = randomised(Linear(how))
    conv, norm = model.first, model.first_bn
    with torch.no_grad():
        gain = norm.weight / (norm.running_var + norm.eps).sqrt()
        conv.weight[5] = (gain[0] * conv.weight[0] - 2 * gain[3] * conv.weight[3]) / gain[5]
        offset = gain * (conv.bias - norm.running_mean) + norm.bias
        norm.bias[5] += offset[0] - 2 * offset[3] - offset[5]
    keep = (0, 1, 2, 3, 4)
    keeps = {"first": Keep(keep), "first_bn": Keep(keep), "second": Keep(None, keep)}
    with hardly_any_ridge():
        found = solved(model, keeps, images(dtype=torch.float64), dtype=torch.float64)
    new = images(16, seed=1)
    assert deviation(outputs(found.before.module, [b.double() for b in new]), outputs(model, new)) > 0.05
    assert deviation(outputs(found.model, new), outputs(model, new)) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_float32_solves_as_float64_does(kind):
    model = calibrated(KINDS[kind])
    keeps = keeps_for(model)
    single = solved(model, keeps, images())
    double = solved(model, keeps, images(dtype=torch.float64), dtype=torch.float64)
    new = images(16, seed=1)
    assert deviation(outputs(single.model, new), outputs(double.model, new)) < 1e-3
    assert list(single.found.fits) == list(double.found.fits)


@pytest.mark.parametrize("kind", KINDS)
def test_written_back_the_network_is_the_folded_one(kind):
    model = calibrated(KINDS[kind])
    found = solved(model, keeps_for(model), images())
    new = images(16, seed=1)
    assert deviation(outputs(found.model, new), outputs(found.after.module, new)) < 1e-4
    for name, fit in found.found.fits.items():
        assert fit.explained <= 1, name
        assert fit.variance.min() >= 0, name


@pytest.mark.parametrize("kind", ["batch norm", "depthwise", "stream"])
def test_in_training_the_normalisation_sees_the_statistics_that_it_was_given(kind):
    model = calibrated(KINDS[kind])
    found = solved(model, keeps_for(model), images()).model
    fresh = copy.deepcopy(found).train()
    for norm in fresh.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = 1.0  # the statistics of the one batch alone
    with torch.no_grad():
        fresh(torch.cat(images()))
    for name, norm in found.named_modules():
        if isinstance(norm, nn.BatchNorm2d):
            seen = fresh.get_submodule(name)
            spread = norm.running_var.sqrt()
            assert ((seen.running_mean - norm.running_mean).abs() <= 0.1 * spread.clamp(min=1e-3)).all(), name
            torch.testing.assert_close(seen.running_var, norm.running_var, rtol=0.2, atol=1e-4)


def test_filters_keep_the_norms_that_they_had():
    model = calibrated(Stream)
    keeps = keeps_for(model)
    found = solved(model, keeps, images())
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    for name in ("in1", "out2", "down"):
        old, new = (one.get_submodule(name).weight.flatten(1).norm(dim=1) for one in (pruned, found.model))
        torch.testing.assert_close(new, old.clamp(min=LEAST_NORM * old.mean()))


def test_a_dead_filter_is_no_wall_for_training():
    """Its norm is near zero: if kept, the gain of its normalisation would be huge, and so would every step."""
    model = calibrated(Stream)
    with torch.no_grad():
        model.in1.weight[2] *= 1e-12
        model.in1_bn.running_mean[2], model.in1_bn.running_var[2] = 0, 1e-24
    keeps = {"stem": Keep((0, 1, 2, 4, 5)), "stem_bn": Keep((0, 1, 2, 4, 5))}
    keeps |= {name: Keep((0, 1, 2, 4, 5)) for name in ("out0", "out0_bn", "out1", "out1_bn")}
    keeps |= {name: Keep(None, (0, 1, 2, 4, 5)) for name in ("in0", "in1", "in2", "down")}
    found = solved(model, keeps, images())
    norms = found.model.in1.weight.flatten(1).norm(dim=1)
    assert norms.min() >= 0.7 * LEAST_NORM * norms[[0, 1, 3, 4]].mean()
    assert found.model.in1_bn.weight.abs().max() < 10
    assert deviation(outputs(found.model, images(8)), outputs(found.after.module, images(8))) < 1e-4


@pytest.mark.parametrize("value", [0.0, 3000.0])
def test_dead_and_constant_maps_do_no_harm(value):
    model = calibrated(lambda: pooled(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU(), width=5))
    with torch.no_grad():
        model[0].weight[[1, 4]] = 0
        model[0].bias[[1, 4]] = value
        model[2].weight[:] = model[2].weight / (1 + value)
        model[2].weight[3] = 0
    keeps = {"0": Keep((0, 1, 4)), "2": Keep(None, (0, 1, 4))}
    found = solved(model, keeps, images())
    assert all(tensor.isfinite().all() for tensor in found.model.state_dict().values())
    expected = outputs(model, images())
    before, after = (outputs(one.module, images()) for one in (found.before, found.after))
    assert (after - expected).square().sum() <= (before - expected).square().sum()


def test_images_that_are_all_the_same_do_no_harm():
    model = calibrated(Stream)
    same = [torch.ones(16, *SHAPE)]
    found = solved(model, keeps_for(model), same)
    assert all(tensor.isfinite().all() for tensor in found.model.state_dict().values())
    assert deviation(outputs(found.after.module, same), outputs(model, same)) < 0.1


def test_where_nothing_was_cut_nothing_is_solved():
    model = calibrated(Stream)
    found = solved(model, {}, images(16))
    assert found.found.fits == found.found.left == {}
    assert torch.equal(outputs(found.model, images(16)), outputs(model, images(16)))


def test_one_channel_and_one_image_are_enough():
    model = calibrated(Stream)
    groups = [group for group in trace(model, SHAPE).groups if not group.fixed]
    assert {group.width for group in groups} == {5, 6, 8}
    found = solved(model, {"in1": Keep((3,)), "in1_bn": Keep((3,)), "out1": Keep(None, (3,))}, images(1))
    assert all(tensor.isfinite().all() for tensor in found.model.state_dict().values())


@pytest.mark.parametrize("seed", range(3))
def test_without_branches_outputs_come_closer_to_the_originals(seed):
    model = calibrated(Stream, seed)
    for branch in find_branches(model, trace(model, SHAPE)):
        found = solved(model, {}, images(), [branch.name])
        before, after = (
            divergence(found.original.module, one.module, images(100, seed=5)) for one in (found.before, found.after)
        )
        assert after < before


def test_the_layer_before_a_branch_that_is_gone_makes_the_stream_behind_it():
    """The branch adds a linear function of its input, which the layer before it can compute as well."""

    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner, self.outer = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
            self.fc = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            return self.fc(torch.relu(x + self.outer(self.inner(x))).mean((2, 3)))

    model = randomised(Doubled())
    found = solved(model, {}, images(), ["outer"])
    assert list(found.found.fits) == ["stem", "fc"]
    assert found.found.fits["stem"].explained > 0.9999
    stem = found.after.module.get_submodule("stem")
    mixed = torch.eye(4) + (model.outer.weight.flatten(1) @ model.inner.weight.flatten(1))
    expected = (mixed @ model.stem.weight.flatten(1)).view_as(stem.weight)
    assert deviation(stem.weight.detach(), expected.detach()) < 0.01


def test_only_the_steps_that_are_given_are_taken():
    model = calibrated(Stream)
    original = OriginalGraph.of(model, SHAPE)
    cut = original.cut(keeps_for(model))
    before = copy.deepcopy(cut.module.state_dict())
    found = reconstruct_(original, cut, images(16), MemoryLimit(2**30), steps=steps_of(original, cut)[0][:2])
    assert list(found.fits) == ["in0", "out0"]
    changed = {
        name.split(".")[0] for name, value in cut.module.state_dict().items() if not torch.equal(before[name], value)
    }
    assert changed == {"in0", "out0"}


@pytest.mark.parametrize("limit", [2**30, 0])
def test_from_known_values_layers_are_solved_as_from_the_images(limit):
    original = OriginalGraph.of(calibrated(Stream), SHAPE)
    batches, memory = images(16), MemoryLimit(limit)
    place = next(at for at, node in enumerate(original.module.graph.nodes) if node.name == "out0")
    prefix = Suffix(original.module, batches, memory)
    with torch.inference_mode():
        prefix.advance(place)
    weights = []
    for known in ({}, prefix.known):
        cut = original.cut({}, ["out1"])
        found = reconstruct_(original, cut, batches, memory, known=known)
        assert next(iter(found.fits)) == "out0"
        weights.append(cut.module.state_dict())
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)
    prefix.close()
    assert memory.left_bytes == limit


@pytest.mark.parametrize("limit", [2**30, 2**16, 0])
def test_what_memory_cannot_hold_goes_to_a_file_and_changes_nothing(limit):
    model = calibrated(Stream)
    original = OriginalGraph.of(model, SHAPE)
    weights = []
    for left in (2**30, limit):
        cut, memory = original.cut(keeps_for(model)), MemoryLimit(left)
        reconstruct_(original, cut, images(40, batch=16), memory)
        assert memory.left_bytes == left
        weights.append(cut.module.state_dict())
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())


def test_wide_layers_are_solved_from_fewer_rows_as_well(monkeypatch):
    model = calibrated(Stream)
    keeps = keeps_for(model)
    monkeypatch.setattr(solve, "LARGEST_COLUMNS", 20)
    found = solved(model, keeps, images(10))
    expected = outputs(model, images(10))
    before, after = (outputs(one.module, images(10)) for one in (found.before, found.after))
    assert (after - expected).square().sum() < (before - expected).square().sum()


def test_a_layer_that_is_left_and_one_without_a_bias_keep_what_they_have():
    model = calibrated(Stream)
    original = OriginalGraph.of(model, SHAPE)
    keeps = keeps_for(model)
    cut = original.cut(keeps)
    found = reconstruct_(original, cut, images(), MemoryLimit(2**30))
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    stem = pruned.stem.weight.clone()
    write_back_(pruned, original, cut, found)
    assert torch.equal(pruned.stem.weight, stem)  # it reads the images, from which nothing is removed
    assert pruned.in0.bias is None
