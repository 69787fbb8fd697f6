"""Learning rate and moving average, from the number of steps, for a network that starts with most of its accuracy.

The usual rates destroy this accuracy; low rates improve on it. Gradients are large at first, so they are clipped to a
norm (``max_grad_norm``, 5 in the recipe). Without clipping, the best rate for 100 steps was a tenth of the best rate
with it, differed tenfold between two networks, and gained less. A reconstructed ResNet-20 with 85.7% accuracy on
CIFAR-10 reached 87.4% after 100 steps at a rate of 0.003, 87.3% at 0.006 and 86.7% at 0.012 (batches of 128 images);
90.7% after 1,150 steps at 0.006 and 90.4% at 0.015. Without clipping, 86.6% was the best result of 100 steps, and a
rate of 0.003 led to 81.0%.
"""

import math
from dataclasses import dataclass

from catro_deploy.settings.batches import LARGEST_BATCH, scaled_rate

__all__ = ["PROBE_FACTORS", "ProbeSize", "ema_decay", "learning_rate", "probe_size"]

HIGHEST_RATE = 0.02
# The rate for this number of steps, and the exponent by which it grows with the steps.
RATE, RATE_STEPS, EXPONENT = 0.004, 100, 0.25

PROBE_FACTORS = (1 / 3, 1.0, 3.0)
PROBE_STEPS, PROBE_HELD_OUT = 50, 8
# Share of a training's steps for each rate: three rates then take at most 30% of them, and 6% in a long training. With
# CutMix, 50 of 7,000 steps were too few in two of four trainings: the middle rate had not yet improved the loss, so
# that a third of it was chosen.
PROBE_SHARE, LONG_PROBE_SHARE = 0.1, 0.02
# With fewer steps a probe would be too short to distinguish rates.
LEAST_TRAINING_STEPS, LEAST_EPOCH_STEPS = 150, 20


@dataclass(frozen=True)
class ProbeSize:
    """Batches of a probe: ``steps`` to train with each rate, then ``held_out`` ones to evaluate it."""

    steps: int
    held_out: int


def learning_rate(steps: int, batch: int = LARGEST_BATCH) -> float:
    """The peak learning rate of a training of ``steps``: 0.004 for 100, 0.007 for 1,000, 0.01 for 3,900.

    0.004 (steps / 100)^(1/4), at most 0.02 (from 62,500 steps on), for batches of 128 images; scaled in proportion to a
    smaller ``batch``, whose gradients are noisier: 22 steps in batches of 16 raised a reconstructed ResNet-20's KL
    divergence from 0.50 to 0.56 nats at 0.001, and to 0.52 at 0.0003.
    """
    return scaled_rate(min(HIGHEST_RATE, RATE * math.pow(max(1, steps) / RATE_STEPS, EXPONENT)), batch)


def ema_decay(steps: int, epoch_steps: int) -> float:
    """The decay of a moving average over half an epoch of ``epoch_steps``, but at most over a tenth of all ``steps``.

    An average over n steps has the decay 1 - 1/n; over one step it is 0, and there is no average.
    """
    return 1 - 1 / max(1.0, min(epoch_steps / 2, steps / 10))


def probe_size(steps: int, epoch_steps: int) -> ProbeSize | None:
    """The probe before a training of ``steps``; None if the training, or its epoch, is too short.

    All batches of a probe are from one epoch of ``epoch_steps``, so that they do not overlap.
    """
    if steps < LEAST_TRAINING_STEPS or epoch_steps < LEAST_EPOCH_STEPS:
        return None
    held_out = min(PROBE_HELD_OUT, epoch_steps // 5)
    enough = max(PROBE_STEPS, int(steps * LONG_PROBE_SHARE))
    return ProbeSize(min(enough, int(steps * PROBE_SHARE), epoch_steps - held_out), held_out)
