"""A short probe of learning rates before a training."""

import math
from collections.abc import Sequence
from itertools import islice

import torch
from torch import nn

from catro_deploy.progress import Progress
from catro_deploy.records import Probe
from catro_deploy.training.batches import Epochs, seed_of
from catro_deploy.training.gentle import PROBE_FACTORS, ProbeSize
from catro_deploy.training.schedule import learning_rate_factor
from catro_deploy.training.stepper import Stepper, seeded
from catro_deploy.training.striding import striding_first
from catro_deploy.training.world import World

__all__ = ["probe_learning_rates"]

# An epoch number that the training does not use, since it counts from 1.
PROBE_EPOCH = 0


def probe_learning_rates(
    stepper: Stepper, batches: Epochs, middle: float, size: ProbeSize, world: World, progress: Progress
) -> Probe:
    """Try the learning rate ``middle``, a third of it and three times it; the network of ``stepper`` does not change.

    Each rate trains a copy of the network on the same batches and decays along half a cosine; without the decay, the
    noise of the last steps would penalise high rates. The criterion is the loss, in eval mode, on later training
    batches. The highest rate that improves the network is chosen: in a long training, higher rates gain more as long as
    they do not raise the loss. If none improves it, the rate with the smallest loss is chosen, and the lowest rate if
    losses are equal or all diverge. All processes of ``world`` take part and get the same result.
    """
    learning_rates = tuple(middle * factor for factor in PROBE_FACTORS)
    copies = [stepper.copy() for _ in (*learning_rates, None)]  # the last is not trained
    for one in copies:
        one.join(world)
    networks = nn.ModuleList(one.model for one in copies)
    drawn = islice(batches.epoch(PROBE_EPOCH), size.steps + size.held_out)
    held_out: list[list[torch.Tensor]] = []
    seed = seed_of(stepper.settings.seed, PROBE_EPOCH, 2 + world.rank)
    with (
        striding_first(networks),
        seeded(seed, stepper.hardware),
        progress.task("trying learning rates", size.steps + size.held_out) as task,
    ):
        for one in copies:
            one.train()
        for number, (images, labels) in enumerate(drawn):
            if number < size.steps:
                factor = learning_rate_factor("cosine", number, size.steps)
                for one, rate in zip(copies, learning_rates, strict=False):
                    one.step(images, labels, rate * factor)
            else:
                networks.eval()
                held_out.append([one.loss(images, labels) for one in copies])
            task.advance()
    means = world.mean(torch.stack([torch.stack(losses) for losses in held_out]).mean(dim=0)).tolist()
    *losses, before = (loss if math.isfinite(loss) else None for loss in means)
    return world.share(Probe(size.steps, learning_rates, tuple(losses), before, _best(learning_rates, losses, before)))


def _best(learning_rates: tuple[float, ...], losses: Sequence[float | None], before: float | None) -> float:
    finite = [(loss, rate) for rate, loss in zip(learning_rates, losses, strict=True) if loss is not None]
    better = [rate for loss, rate in finite if before is None or loss < before]
    if better:
        return max(better)
    return min(finite)[1] if finite else min(learning_rates)
