"""Cutting: for random plans, the pruned network computes the same as the masked original."""

import copy
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_, further, keeps_of, masked, spread, supports
from catro_deploy.models import build_model
from catro_deploy.records import Group, Keep
from tests.graph.by_hand import group
from tests.graph.cut_networks import CASES, Bare, Grouped, Multiplied, Normalised, Shared, Upsampled
from tests.graph.networks import Branches, Residual, randomised

WHOLE = [("cifar_resnet20", 32), ("torchvision:mobilenet_v3_small", 64), ("torchvision:squeezenet1_1", 64)]


def images(seed: int, size: int = 8) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(seed))


def deviation(model: nn.Module, keeps: dict[str, Keep], batch: torch.Tensor) -> float:
    """Largest difference between the pruned and the masked network, relative to the largest logit."""
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    with torch.inference_mode():
        expected, found = masked(model, keeps)(batch), pruned(batch)
    assert sum(p.numel() for p in pruned.parameters()) <= sum(p.numel() for p in model.parameters())
    return float((expected - found).abs().max() / expected.abs().max().clamp(min=1e-6))


def drawn(groups: tuple[Group, ...], seed: int) -> dict[str, list[int]]:
    pick = random.Random(seed)
    return {one.name: sorted(pick.sample(range(one.width), pick.randint(1, one.width))) for one in groups}


@settings(deadline=None, max_examples=150)
@given(name=st.sampled_from(sorted(CASES)), seed=st.integers(0, 10_000))
def test_pruned_equals_masked(name, seed):
    case = CASES[name]
    keeps = keeps_of(case.groups, drawn(case.groups, seed), case.sizes)
    assert deviation(case.network(seed), keeps, images(seed)) < 1e-5


@settings(deadline=None, max_examples=30)
@given(name=st.sampled_from(sorted(CASES)), seed=st.integers(0, 10_000))
def test_cut_twice_is_cut_once(name, seed):
    """Cutting to some channels and then to a subset of them is the same as cutting to the subset at once."""
    case = CASES[name]
    some = drawn(case.groups, seed)
    fewer = {name: kept[:: 1 + seed % 3] for name, kept in some.items()}
    before, after = (keeps_of(case.groups, kept, case.sizes) for kept in (some, fewer))
    once = apply_keeps_(case.network(seed), after)
    twice = apply_keeps_(case.network(seed), before)
    apply_keeps_(twice, {name: further(before.get(name), keep) for name, keep in after.items()})
    assert {name: value.tolist() for name, value in once.state_dict().items()} == {
        name: value.tolist() for name, value in twice.state_dict().items()
    }
    with torch.inference_mode():
        torch.testing.assert_close(once(images(seed)), twice(images(seed)), rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "size"), WHOLE)
def test_whole_networks_pruned_equal_masked(name, size, seed):
    torch.manual_seed(seed)
    model = build_model(name, 7).eval()
    network = trace(model, (3, size, size))
    free = tuple(one for one in network.groups if not one.fixed)
    keeps = keeps_of(network.groups, drawn(free, seed), network.sizes)
    assert deviation(model, keeps, images(seed, size)) < 1e-5


def test_modules_say_their_new_size():
    model = apply_keeps_(
        Branches(), {"depthwise": Keep(out=(1, 4)), "norm": Keep(out=(0, 5, 8)), "act": Keep(out=(1, 4))}
    )
    assert (model.depthwise.groups, model.depthwise.in_channels, model.depthwise.out_channels) == (2, 2, 2)
    assert (model.norm.num_features, model.norm.running_mean.shape[0]) == (3, 3)
    assert model.act.num_parameters == 2


def test_a_grouped_convolution_loses_whole_groups():
    """Of 4 groups of 3 channels, the second and the last stay."""
    model = Grouped()
    before = model.grouped.weight.detach().clone()
    apply_keeps_(model, {"grouped": Keep((3, 4, 5, 9, 10, 11), (3, 4, 5, 9, 10, 11))})
    conv = model.grouped
    assert (conv.groups, conv.in_channels, conv.out_channels) == (2, 6, 6)
    assert torch.equal(conv.weight, before[[3, 4, 5, 9, 10, 11]])


def test_a_depthwise_convolution_with_a_multiplier_loses_the_outputs_of_its_inputs():
    model = apply_keeps_(Multiplied(), {"depthwise": Keep(inputs=(1, 4))})
    conv = model.depthwise
    assert (conv.groups, conv.in_channels, conv.out_channels, tuple(conv.weight.shape)) == (2, 2, 4, (4, 1, 3, 3))


def test_transposed_convolutions_have_their_inputs_first():
    model = Upsampled()
    grouped, plain = model.grouped.weight.detach().clone(), model.plain.weight.detach().clone()
    apply_keeps_(model, {"grouped": Keep((4, 5, 6, 7), (3, 4, 5)), "plain": Keep((0, 2), (4, 5, 6, 7))})
    assert (model.grouped.groups, model.grouped.in_channels, model.grouped.out_channels) == (1, 3, 4)
    assert torch.equal(model.grouped.weight, grouped[3:])
    assert (model.plain.in_channels, model.plain.out_channels) == (4, 2)
    assert torch.equal(model.plain.weight, plain[4:][:, [0, 2]])
    assert len(model.plain.bias) == 2


def test_norms_say_their_new_size_with_and_without_weights():
    model = Normalised()
    apply_keeps_(model, {"by_group": Keep((2, 3, 6, 7)), "by_image": Keep((1,)), "plain": Keep((0, 1))})
    assert (model.by_group.num_groups, model.by_group.num_channels, len(model.by_group.weight)) == (2, 4, 4)
    assert model.by_image.num_features == 1
    assert (model.plain.num_features, len(model.plain.running_var)) == (2, 2)
    untracked = nn.Sequential(nn.BatchNorm1d(5, affine=False, track_running_stats=False))
    assert apply_keeps_(untracked, {"0": Keep((1, 2))})[0].num_features == 2


def test_bare_tensors_stay_what_they_are():
    model = apply_keeps_(
        Bare(),
        {
            "scale": Keep((1, 2)),
            "offset": Keep((1, 2)),
            "kernel": Keep((0, 4), (1, 2)),
            "bias": Keep((0, 4)),
            "by_place": Keep((0, 4)),
        },
    )
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if not name.startswith(("first", "fc"))}
    assert shapes == {"scale": (2, 1, 1), "kernel": (2, 2, 3, 3), "bias": (2,), "by_place": (1, 2, 8, 8)}
    assert model.scale.requires_grad
    assert not model.bias.requires_grad
    assert tuple(dict(model.named_buffers())["offset"].shape) == (1, 2, 1, 1)
    assert "offset" not in model.state_dict()  # still not persistent


def test_shared_weights_stay_shared():
    model = Shared()
    keep = Keep((0, 3), (0, 3))
    apply_keeps_(model, {"norm": Keep((0, 3)), "one": keep, "other": Keep((0, 3))})
    assert model.norm is model.alias
    assert model.norm.num_features == 2
    assert model.one.weight is model.other.weight
    assert tuple(model.one.weight.shape) == (2, 2, 3, 3)
    assert (model.other.in_channels, model.other.out_channels, len(model.other.bias)) == (2, 2, 2)


def test_a_shared_weight_that_is_to_be_cut_in_two_ways_is_refused():
    with pytest.raises(ModelError, match=r"\bone\b.*\bother\b") as caught:
        apply_keeps_(Shared(), {"one": Keep((0, 3)), "other": Keep((0, 4))})
    assert 'ignore = ["one"]' in caught.value.hint


def test_cut_weights_are_the_chosen_ones():
    model = Residual()
    before = model.outer.weight.detach().clone()
    apply_keeps_(model, {"outer": Keep(out=(0, 3), inputs=(1, 2, 4))})
    assert torch.equal(model.outer.weight, before[[0, 3]][:, [1, 2, 4]])
    assert (model.outer.in_channels, model.outer.out_channels) == (3, 2)


def test_masking_leaves_the_model_as_it_is():
    model = randomised(Residual())
    before = copy.deepcopy(model.state_dict())
    masked(model, {"outer": Keep(inputs=(1,))})
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_channels_that_stand_for_any_are_spread_evenly():
    ten = group("conv", 10)
    assert spread(ten, 1) == (0,)
    assert spread(ten, 5) == (0, 2, 4, 6, 8)
    assert spread(ten, 10) == tuple(range(10))
    assert all(len(set(spread(ten, width))) == width for width in range(11))


@pytest.mark.parametrize("whole", [nn.Conv2d(4, 4, 1), nn.ConvTranspose3d(4, 4, 1, groups=2), nn.GroupNorm(2, 4)])
def test_what_can_be_cut(whole):
    assert supports(whole)
    assert not supports(nn.LayerNorm(4))
    assert not supports(nn.ReLU())


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_weight_that_is_computed_is_refused(wrap):
    model = nn.Sequential(wrap(nn.Conv2d(3, 4, 1)))
    assert not supports(model[0])
    with pytest.raises(ModelError, match="ParametrizedConv2d") as caught:
        apply_keeps_(model, {"0": Keep(out=(0,))})
    assert "parametrisation" in caught.value.hint


@pytest.mark.parametrize(
    ("keeps", "reason"),
    [
        ({"nothing": Keep(out=(0,))}, r"\bnothing\b"),
        ({"": Keep(out=(0,))}, r"\bGrouped\b"),
        ({"stem": Keep(out=())}, r"no channels.*\bstem\b"),
        ({"stem": Keep(inputs=())}, r"no channels.*\bstem\b"),
        ({"grouped": Keep(out=())}, r"no channels.*\bgrouped\b"),
        ({"stem": Keep(out=(0, 8))}, r"\b8\b.*\bstem\b.*\b8\b.*\(8, 3, 3, 3\)"),
        ({"grouped": Keep((0, 1, 3, 4, 5))}, r"\bgrouped\b.*\bConv2d\b.*\b4 groups\b.*\b3 channels\b"),
        ({"grouped": Keep((0, 1, 2), (3, 4, 5))}, r"\bgrouped\b.*\b4 groups\b"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(keeps, reason):
    model = Grouped()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ModelError, match=reason) as caught:
        apply_keeps_(model, {"fc": Keep(inputs=(1, 2))} | keeps)
    assert caught.value.hint
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
