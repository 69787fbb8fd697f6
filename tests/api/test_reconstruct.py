"""The reconstruction options of ``prune``."""

import pytest
import torch
from torch import nn

import catro_deploy
from catro_deploy.errors import SettingsError
from catro_deploy.reconstruction.loss import divergence
from tests.api.test_prune import CLASSES, QUICK, loader
from tests.graph.networks import Branches, randomised
from tests.notes import Notes
from tests.stages.test_prune import lively
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too


def images() -> list[torch.Tensor]:
    return [batch for batch, _ in loader()]


def test_layers_are_solved_again_unless_that_is_declined():
    plain, solved = (
        catro_deploy.prune(lively(), loader(), reconstruct=reconstruct, worth="scatter", criterion="l1", **QUICK)
        for reconstruct in (False, True)
    )
    assert plain.plan.reconstruction is None
    assert plain.plan.keeps == solved.plan.keeps
    assert set(solved.plan.reconstruction.explained) == {"conv2", "conv3", "fc"}
    found = [divergence(one.original, one.model, images()) for one in (plain, solved)]
    record = solved.plan.reconstruction
    assert [record.kl_cut, record.kl_reconstructed] == pytest.approx(found, rel=0.5)
    assert found[1] < 0.1 * found[0]


@pytest.mark.parametrize("worth", ["measured", "scatter"])
@pytest.mark.parametrize("criterion", ["catro", "obs", "l1"])
@pytest.mark.parametrize("allocation", ["auto", "uniform", "flops"])
def test_every_criterion_goes_with_every_worth(criterion, worth, allocation):
    plan = catro_deploy.prune(lively(), loader(), criterion=criterion, worth=worth, allocation=allocation, **QUICK).plan
    assert plan.pruned_macs <= 0.5 * plan.original_macs
    assert plan.reconstruction.kl_reconstructed <= plan.reconstruction.kl_cut
    assert (plan.criterion, plan.settings["worth"]) == (criterion, worth)


@pytest.mark.parametrize("allocation", ["auto", "exact", "greedy", "uniform", "flops"])
def test_images_alone_are_enough_for_obs(allocation):
    plan = catro_deploy.prune(lively(), images(), criterion="obs", allocation=allocation, **QUICK).plan
    assert plan.reconstructed
    assert plan.pruned_macs <= 0.5 * plan.original_macs


def test_images_alone_are_enough_where_three_groups_meet():
    """Exact allocation is not possible in that case; greedy allocation is used instead."""

    class Nine(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.body = nn.AvgPool2d(2), randomised(Branches())

        def forward(self, x):
            return self.body(self.pool(x))

    plan = catro_deploy.prune(Nine(), images(), criterion="obs", **(QUICK | {"budget": "60%flops"})).plan
    assert plan.pruned_macs <= 0.6 * plan.original_macs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"criterion": "obs", "worth": "scatter"}, 'worth = "scatter"'),
        ({"criterion": "obs", "reconstruct": False}, "reconstruct = false"),
    ],
)
def test_what_needs_labels_is_reported(options, said):
    with pytest.raises(SettingsError, match=said):
        catro_deploy.prune(lively(), images(), **options, **QUICK)


def test_the_last_layer_aims_at_the_wanted_logits():
    found = catro_deploy.prune(lively(), loader(), classes=["even", "across"], class_names=CLASSES, **QUICK)
    wanted = torch.cat([batch[labels != 1] for batch, labels in loader()])
    with torch.inference_mode():
        expected, predictions = lively()(wanted)[:, [2, 0]], found.model(wanted)
    explained = 1 - (predictions - expected).square().sum() / (expected - expected.mean(0)).square().sum()
    assert explained > 0.8
    assert found.plan.reconstruction.explained["fc"] == pytest.approx(float(explained), abs=0.05)


class ScaledConv(nn.Conv2d):
    """A convolution with its own forward, which no plain convolution computes: its input cannot be traced."""

    def forward(self, x):
        return 1.5 * nn.functional.conv2d(nn.functional.pad(x, (0, 1, 0, 1)), self.weight, self.bias, self.stride)


def test_where_worth_cannot_be_measured_for_most_channels_scatter_takes_its_place():
    convolutions = [ScaledConv(3, 12, 2), nn.ReLU(), ScaledConv(12, 16, 2), nn.ReLU(), ScaledConv(16, 16, 2), nn.ReLU()]
    model = randomised(nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)))
    progress = Notes()
    plan = catro_deploy.prune(model.eval(), loader(), worth="measured", progress=progress, **QUICK).plan
    assert any("worth cannot be measured for most channels" in note for note in progress.lines)
    assert plan.pruned_macs <= 0.5 * plan.original_macs
    assert ("2",) in {group.producers for group in plan.groups if len(group.kept) < group.width}
