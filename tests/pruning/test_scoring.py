"""Scores of channels, and the reasons why groups have none."""

import pytest
from torch import nn

from catro_deploy.errors import BudgetError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.progress import Silent
from catro_deploy.pruning.scoring import score_channels
from catro_deploy.settings import PruneSettings
from tests.graph.networks import Residual, randomised
from tests.graph.opaque import Between, ByCount
from tests.pruning.samples import batches


def test_channels_without_a_score_stay():
    model = randomised(Between(ByCount()))
    network = trace(model, (3, 8, 8))
    scored = score_channels(model, network, batches(), PruneSettings(d_min=1), Silent())
    assert {group.name for group in scored.prunable} == {"stem", "block.0", "last"}
    assert scored.fixed["block.1.conv"].startswith("block.1 is not traced: TraceError")


def test_a_dead_group_stays_and_the_others_are_scored():
    model = randomised(Residual())
    model.inner_bn.weight.data.zero_()
    model.inner_bn.bias.data.fill_(-1.0)
    scored = score_channels(model, trace(model, (3, 8, 8)), batches(), PruneSettings(d_min=1), Silent())
    assert "dead" in scored.fixed["inner"]
    assert {group.name for group in scored.prunable} == {"stem", "down"}


def test_ignored_modules_are_not_scored():
    model = randomised(Between(ByCount()))
    network = trace(model, (3, 8, 8), ["block"])
    settings = PruneSettings(d_min=1, ignore=["block"])
    scored = score_channels(model, network, batches(), settings, Silent())
    assert {group.name for group in scored.prunable} == {"stem", "last"}
    assert "to be ignored" in scored.fixed["block.0"]


def test_a_network_without_any_score():
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 6, 1), ByCount()), nn.Flatten(), nn.Linear(6 * 64, 3))
    network = trace(randomised(model), (3, 8, 8), ["0.0"])
    with pytest.raises(BudgetError, match=r"0\.1\.conv: 0\.1 "):
        score_channels(model, network, batches(), PruneSettings(d_min=1, ignore=["0.0"]), Silent())
