"""Sizes that modules hold as numbers follow the channels; other numbers do not change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import catro_deploy
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.sizes import resize_stored_, sizes_of, stored_sizes
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.fx.depth import drop_branches, find_branches
from tests.graph.held_networks import FREE, Blocks, Chance, Crossing, Densely, Mixed, Partial, Scales, Viewed
from tests.graph.networks import assert_cut_is_masked, randomised
from tests.graph.onnx.test_skeleton import assert_as_really_cut

IMAGE = (3, 8, 8)


def narrowed(factory: type[nn.Module], **widths: int) -> nn.Module:
    """The network pruned to the first ``widths[name]`` channels of each named group (``__`` for a dot)."""
    model = randomised(factory())
    network = trace(model, IMAGE)
    kept = {name.replace("__", "."): range(width) for name, width in widths.items()}
    return apply_keeps_(model, keeps_of(network.groups, kept, network.sizes))


def test_sizes_are_positive_numbers_and_lists_of_such():
    module = nn.Module()
    module.width, module.splits, module.pair = 8, [3, 5], (2, 2)
    module.flag, module.rate, module.none, module.empty, module.mixed, module.kernel = True, 0.5, 0, [], [3, "x"], None
    assert sizes_of(module) == {"width": (8,), "splits": (3, 5), "pair": (2, 2)}


def test_names_are_those_of_modules_and_attributes():
    model = Blocks()
    found = stored_sizes(
        model, ["blocks.1.half", "blocks.1.reduce.weight", "blocks.1", "nowhere.half", "blocks.7.half"]
    )
    assert found == {"blocks.1.half": (model.blocks[1], "half")}


@pytest.mark.parametrize(("value", "left"), [(8, 4), ([3, 5], [1, 3]), ((5, 1, 2), (3, 0, 1)), (torch.Size([8]), (4,))])
def test_a_number_counts_what_is_left_and_a_list_what_is_left_of_each_part(value, left):
    module = nn.Module()
    module.size = value
    resize_stored_(module, "size", [1, 3, 4, 7])
    assert module.size == left
    assert type(module.size) is type(value)


@pytest.mark.parametrize("factory", FREE)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_any_plan_leaves_what_the_masked_network_computes(factory, seed):
    model = randomised(factory(), seed)
    network = trace(model, IMAGE)
    assert {group.fixed for group in network.groups} == {"", "the logits"}
    assert_cut_is_masked(model, network, seed)


@pytest.mark.parametrize("factory", FREE)
def test_channels_are_selected_layer_by_layer_while_the_numbers_follow(factory):
    """Channels are selected on inputs that are already cut; the cut network is checked against the masked one."""
    labels = torch.arange(60) % 3
    images = torch.randn(60, *IMAGE, generator=torch.Generator().manual_seed(0)) + labels[:, None, None, None] / 2
    options = {"d_min": 1, "samples_per_class": 16, "compute": "cpu"}
    pruned = catro_deploy.prune(randomised(factory()), [(images, labels)], budget="60%flops", **options)
    assert pruned.plan.pruned_macs <= 0.6 * pruned.plan.original_macs


def test_parts_of_a_list_shrink_each_by_itself():
    groups = {group.name: group.width for group in trace(randomised(Mixed()), IMAGE).groups}
    assert groups == {"stem": 6, "stem#2": 3, "stem#3": 3, "fc": 3}
    assert narrowed(Mixed, stem=4, **{"stem#2": 1}).splits == [4, 1, 3]


def test_parts_of_two_numbers_shrink_each_by_itself():
    model = narrowed(Partial, **{"stem": 2, "stem#2": 4})
    assert (model.convolved, model.untouched) == (2, 4)


def test_parts_of_one_number_shrink_equally():
    model = randomised(Scales())
    assert {group.width for group in trace(model, IMAGE).groups if not group.fixed} == {4}
    assert narrowed(Scales, stem=3).width == 3


def test_a_number_of_which_a_part_is_taken():
    assert narrowed(Crossing, stem=3).expanded == 6


def test_the_end_of_a_slice():
    model = narrowed(Densely, stem=4, conv=2)
    assert model.added == 4
    assert model.conv.out_channels == 6


def test_a_number_in_a_view():
    assert narrowed(Viewed, conv=5).channels == 5


def test_a_number_that_is_a_size_by_chance_is_left_alone():
    network = trace(randomised(Chance()), IMAGE)
    assert "loudness" not in network.sizes
    assert narrowed(Chance, stem=1).loudness == 4


def test_branches_hold_sizes_that_are_cut_or_go_with_them():
    model = randomised(Blocks())
    network = trace(model, IMAGE)
    branches = find_branches(model, network)
    assert [branch.name for branch in branches] == ["blocks.0.reduce", "blocks.1.reduce"]
    assert "blocks.0.half" in branches[0].modules
    shallow = drop_branches(model, ["blocks.0.reduce"], (), network.sizes).eval()
    assert set(stored_sizes(shallow, network.sizes)) == {"blocks.1.half"}  # nothing reads blocks.1.inner
    rest = network.without({*branches[0].modules, "blocks.0.inner", "blocks.1.inner"})
    assert {slot.module for group in rest.groups for slot in group.slots} >= {"blocks.1.half"}
    for seed in range(5):
        assert_cut_is_masked(shallow, rest, seed)


def test_a_size_is_a_constant_of_a_graph_that_was_traced_without_it():
    model = randomised(Blocks())
    network = trace(model, IMAGE)
    names = [branch.name for branch in find_branches(model, network)][:1]
    assert stored_sizes(drop_branches(model, names), network.sizes) == {}


def test_the_model_that_is_traced_keeps_its_numbers():
    model = randomised(Blocks())
    drop_branches(model, ["blocks.0.reduce"], (), ["blocks.1.half"])
    assert [block.half for block in model.blocks] == [4, 4]


@pytest.mark.parametrize("factory", [Mixed, Partial, Scales, Crossing, Densely, Viewed])
def test_networks_to_be_timed_are_those_of_an_export(factory, tmp_path):
    assert_as_really_cut(randomised(factory()), 8, tmp_path, range(2))
