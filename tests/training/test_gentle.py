"""Learning rates, moving averages and probes derived from the number of steps, against values computed by hand."""

import pytest

from catro_deploy.training import gentle
from catro_deploy.training.gentle import ProbeSize, probe_size


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0, 0.0012649),  # same as for one step: 0.004 divided by the fourth root of 100
        (100, 0.004),
        (1_600, 0.008),  # 16 times 100 steps, and 16^(1/4) = 2
        (8_100, 0.012),
        (62_500, 0.02),
        (1_000_000, 0.02),
    ],
)
def test_the_rate_grows_with_the_steps_up_to_a_bound(steps, expected):
    assert gentle.learning_rate(steps) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("batch", "expected"), [(256, 0.004), (128, 0.004), (32, 0.001), (16, 0.0005)])
def test_the_rate_is_in_proportion_to_a_small_batch(batch, expected):
    assert gentle.learning_rate(100, batch) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("steps", "epoch_steps", "expected"),
    [
        (3_500, 350, 1 - 1 / 175),  # half an epoch
        (1_050, 350, 1 - 1 / 105),  # a tenth of all steps
        (100, 350, 0.9),
        (8, 5, 0.0),
        (0, 350, 0.0),
    ],
)
def test_the_average_is_over_half_an_epoch_or_a_tenth_of_the_steps(steps, epoch_steps, expected):
    assert gentle.ema_decay(steps, epoch_steps) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("steps", "epoch_steps", "expected"),
    [
        (149, 149, None),
        (10_000, 19, None),
        (150, 150, ProbeSize(15, 8)),
        (350, 350, ProbeSize(35, 8)),
        (2_500, 350, ProbeSize(50, 8)),
        (7_000, 350, ProbeSize(140, 8)),
        (100_000, 350, ProbeSize(342, 8)),  # all of an epoch
        (3_500, 20, ProbeSize(16, 4)),
    ],
)
def test_a_probe_is_short_and_within_one_epoch(steps, epoch_steps, expected):
    assert probe_size(steps, epoch_steps) == expected
