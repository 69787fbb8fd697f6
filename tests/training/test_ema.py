import pytest
import torch
from torch import nn

from catro_deploy.training.ema import MovingAverage, decay_at


def test_decay_starts_low_and_ends_at_its_setting():
    assert decay_at(0, 0.9) == pytest.approx(1 / 10)
    assert decay_at(1, 0.9) == pytest.approx(2 / 11)
    assert decay_at(10_000, 0.9) == 0.9
    assert decay_at(0, 0.05) == 0.05


def test_average_by_hand():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    average = MovingAverage(model, decay=0.9)
    for step, value in enumerate((11.0, 22.0)):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update(step)
    # 0.1 * 1 + 0.9 * 11 = 10;  2/11 * 10 + 9/11 * 22 = 20/11 + 18
    assert average.network.weight.item() == pytest.approx(18 + 20 / 11)
    assert model.weight.item() == 22.0


def test_buffers_are_averaged_and_counters_copied():
    model = nn.BatchNorm1d(2)
    average = MovingAverage(model, decay=0.9)
    model.running_mean.fill_(10.0)
    model.num_batches_tracked.fill_(7)
    average.update(0)
    # 0.1 * 0 + 0.9 * 10
    torch.testing.assert_close(average.network.running_mean, torch.full((2,), 9.0))
    assert average.network.num_batches_tracked.item() == 7
    assert not average.network.training
    assert not any(p.requires_grad for p in average.network.parameters())
