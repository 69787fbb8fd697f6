"""Cost of the teacher's forward pass in a step of distillation: the network as it is, folded, folded and compiled.

    python -m benchmarks.training.teacher [--models cifar_resnet20@32 torchvision:resnet50@96] [--turns 15]

Milliseconds of a forward pass without gradients over one batch, in the number format and layout of the training. The
variants are interleaved; ratios are medians over the turns with their quartiles. Weights are random. Prints a table;
writes benchmarks/results/teacher.json.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.common import environment, table, times_ms, write_result
from benchmarks.training.variants import CLASSES, arguments, medians_ms, ratio_quartiles
from catro_deploy.graph.fx.folding import folded
from catro_deploy.models import build_model
from catro_deploy.progress import Silent
from catro_deploy.training.compiling import compiled_teacher
from catro_deploy.training.compute import choose_hardware

WAYS = ("as it is", "folded", "folded, compiled")


def outputs(name: str, batch: int) -> list[Callable[[], torch.Tensor]]:
    """One function for each of ``WAYS``."""
    model, _, size = name.partition("@")
    teacher = build_model(model, CLASSES).eval()
    hardware = choose_hardware(teacher, "auto", amp=True)
    images = torch.rand(batch, 3, int(size), int(size), device=hardware.device).to(memory_format=torch.channels_last)
    plain, short = (
        hardware.place(network).to(memory_format=torch.channels_last) for network in (teacher, folded(teacher))
    )
    ways = (plain, short, compiled_teacher(short, images, hardware, Silent()))

    def output(way: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        with torch.no_grad(), hardware.autocast():
            found = way(images).float()
        if hardware.device.type == "cuda":
            torch.cuda.synchronize()
        return found

    return [partial(output, way) for way in ways]


def measure(name: str, batch: int, turns: int) -> dict[str, Any]:
    """Time the variants, interleaved."""
    ways = outputs(name, batch)
    taken_ms = times_ms(ways, turns)
    return {
        "model": name,
        "batch": batch,
        "ms": medians_ms(taken_ms),
        "speedup": [ratio_quartiles(taken_ms, 0, place) for place in range(len(WAYS))],
    }


def main() -> None:
    """Measure, print, write."""
    args = arguments(__doc__)
    rows = [measure(name, args.batch, args.turns) for name in args.models]
    write_result("teacher.json", {"ways": WAYS, "rows": rows, "environment": environment()})
    shown = [
        [
            row["model"],
            *(f"{ms:.1f}" for ms in row["ms"]),
            *(f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in row["speedup"][1:]),
        ]
        for row in rows
    ]
    print(table(["network", *(f"{way}, ms" for way in WAYS), *(f"{way}, times as fast" for way in WAYS[1:])], shown))


if __name__ == "__main__":
    main()
