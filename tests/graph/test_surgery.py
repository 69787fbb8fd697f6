"""Cutting: for random plans the pruned network computes what the masked original computes."""

import copy
import random

import pytest
import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.surgery import apply_keeps_, keeps_of, masked, spread
from catro_deploy.graph.trace import trace
from catro_deploy.models import build_model
from catro_deploy.records import Keep
from tests.graph.networks import Branches, GatedConcat, Grouped, Residual, randomised

SMALL = [(Residual, 8), (Branches, 8), (GatedConcat, 8), (Grouped, 8)]
WHOLE = [("cifar_resnet20", 32), ("torchvision:mobilenet_v3_small", 64), ("torchvision:squeezenet1_1", 64)]


def deviation(model: nn.Module, size: int, seed: int) -> float:
    """Largest difference of the pruned from the masked network, as a share of the largest logit."""
    network = trace(model, (3, size, size))
    pick = random.Random(seed)
    kept = {}
    for group in (group for group in network.groups if not group.fixed):
        drawn = pick.sample(range(group.width), pick.randint(1, group.width))
        one_of_each = {pick.choice(slot.channel) for slot in group.slots}  # no module may be left without channels
        kept[group.name] = sorted({*drawn, *one_of_each})
    keeps = keeps_of(network.groups, kept, network.sizes)
    pruned = apply_keeps_(copy.deepcopy(model), keeps)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        expected, found = masked(model, keeps)(images), pruned(images)
    assert sum(p.numel() for p in pruned.parameters()) <= sum(p.numel() for p in model.parameters())
    return float((expected - found).abs().max() / expected.abs().max().clamp(min=1e-6))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("factory", "size"), SMALL)
def test_pruned_equals_masked(factory, size, seed):
    assert deviation(randomised(factory(), seed), size, seed) < 1e-5


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "size"), WHOLE)
def test_whole_networks_pruned_equal_masked(name, size, seed):
    torch.manual_seed(seed)
    assert deviation(build_model(name, 7), size, seed) < 1e-5


def test_modules_say_their_new_size():
    model = apply_keeps_(
        Branches(), {"depthwise": Keep(out=(1, 4)), "norm": Keep(out=(0, 5, 8)), "act": Keep(out=(1, 4))}
    )
    assert (model.depthwise.groups, model.depthwise.in_channels, model.depthwise.out_channels) == (2, 2, 2)
    assert (model.norm.num_features, model.norm.running_mean.shape[0]) == (3, 3)
    assert model.act.num_parameters == 2


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


def test_channels_that_stand_for_any_are_spread_over_every_part_of_a_group():
    network = trace(GatedConcat(), (3, 8, 8))
    (group,) = [group for group in network.groups if group.width == 10]
    assert spread(group, 5) == (0, 2, 4, 6, 8)
    assert spread(group, 10) == tuple(range(10))
    assert spread(group, 1) == (0, 4)  # left makes the first four, right the rest
    for width in range(1, 11):
        keeps = keeps_of(network.groups, {group.name: spread(group, width)}, network.sizes)
        assert apply_keeps_(GatedConcat(), keeps).eval()(torch.randn(2, 3, 8, 8)).isfinite().all()


@pytest.mark.parametrize(("name", "reason"), [("nothing", "is not in the model"), ("", "cannot be cut")])
def test_a_plan_for_another_model_is_refused(name, reason):
    with pytest.raises(ModelError, match=reason):
        apply_keeps_(Residual(), {name: Keep(out=(0,))})
