"""Cost of learning from the original in a step of fine-tuning: from its outputs, and from its feature maps, too.

    python -m benchmarks.training.feature_maps [--models cifar_resnet20@32 torchvision:resnet50@96] [--turns 15]

Milliseconds of a step on one batch, in the number format and layout of the training, of a network pruned to half of its
multiply-accumulates: learning from labels alone, from the original's outputs with the weight 0.9, and from its feature
maps as well (the recipe ``gentle``). The variants are interleaved; ratios are medians over the turns with their
quartiles. Weights are random. Prints a table; writes benchmarks/results/feature_maps.json.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import catro_deploy
from benchmarks.common import environment, table, times_ms, write_result
from benchmarks.training.variants import CLASSES, arguments, medians_ms, ratio_quartiles
from catro_deploy.models import build_model
from catro_deploy.settings import FinetuneSettings, follow_recipe
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.features import features_of
from catro_deploy.training.objective import Objective
from catro_deploy.training.stepper import Stepper

WAYS = ("labels", "outputs", "outputs and feature maps")


def steps(name: str, batch: int) -> list[Callable[[], torch.Tensor]]:
    """One function for each of ``WAYS``."""
    model, _, size = name.partition("@")
    images, labels = torch.rand(batch, 3, int(size), int(size)), torch.arange(batch) % CLASSES
    pruned = catro_deploy.prune(
        build_model(model, CLASSES).eval(),
        [(images, labels)],
        budget="50%flops",
        allocation="uniform",
        worth="scatter",
        reconstruct=False,
    )
    settings = follow_recipe(FinetuneSettings(), reconstructed=True)
    hardware = choose_hardware(pruned.model, "auto", amp=True, input_shape=pruned.plan.input_shape)
    features = features_of(pruned.original, pruned.model, pruned.plan, settings.distill_features or 0.0)
    share = settings.distill or 0.0
    objectives = (
        Objective(hardware),
        Objective(hardware, teacher=pruned.original, distill=share),
        Objective(hardware, teacher=pruned.original, distill=share, features=features),
    )
    batch_images, batch_labels = images.to(hardware.device), labels.to(hardware.device)

    def step(stepper: Stepper) -> torch.Tensor:
        loss = stepper.step(batch_images, batch_labels, 1e-6)
        if hardware.device.type == "cuda":
            torch.cuda.synchronize()
        return loss

    steppers = [Stepper(copy.deepcopy(pruned.model), objective, settings, hardware) for objective in objectives]
    for stepper in steppers:
        stepper.train()
    return [partial(step, stepper) for stepper in steppers]


def measure(name: str, batch: int, turns: int) -> dict[str, Any]:
    """Time the variants, interleaved."""
    taken_ms = times_ms(steps(name, batch), turns)
    return {
        "model": name,
        "batch": batch,
        "ms": medians_ms(taken_ms),
        "ratio": [ratio_quartiles(taken_ms, 2, place) for place in range(2)],
    }


def main() -> None:
    """Measure, print, write."""
    args = arguments(__doc__)
    rows = [measure(name, args.batch, args.turns) for name in args.models]
    write_result("feature_maps.json", {"ways": WAYS, "rows": rows, "environment": environment()})
    shown = [
        [
            row["model"],
            *(f"{ms:.0f}" for ms in row["ms"]),
            *(f"{middle:.2f}x ({low:.2f} to {high:.2f})" for low, middle, high in row["ratio"]),
        ]
        for row in rows
    ]
    heads = [f"feature maps against {way}" for way in WAYS[:2]]
    print(table(["network", *(f"{way}, ms" for way in WAYS), *heads], shown))


if __name__ == "__main__":
    main()
