"""The number format and memory layout in which a CPU trains fastest: the basis of the choice in training/compute.py.

    python -m benchmarks.training.layouts [--networks cifar_resnet20@32 cifar_resnet20@32*0.31 ...] [--turns 9]

NAME@SIZE*SHARE is a network for square images of SIZE, of which each layer keeps SHARE of its channels. Milliseconds of
an eager forward and backward pass over one batch, and of a forward pass without gradients, as by the teacher of a
distillation. The variants are interleaved, and ratios to float32 in contiguous layout are medians over the turns with
their quartiles. In bold: the choice of a training on this machine by default. Weights are random. Prints a table;
writes benchmarks/results/layouts.json, where rows of other processors are kept.
"""

import argparse
import statistics
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn

from benchmarks.common import environment, processor, read_result, table, times_ms, write_result
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, spread
from catro_deploy.models import build_model
from catro_deploy.training.compute import Hardware, choose_hardware
from catro_deploy.training.striding import striding_first

NETWORKS = [
    "cifar_resnet20@32",
    "cifar_resnet20@32*0.31",
    "cifar_resnet56@32*0.5",
    "torchvision:resnet18@64",
    "torchvision:resnet18@64*0.45",
    "torchvision:resnet50@64*0.45",
    "torchvision:mobilenet_v2@64",
    "torchvision:mobilenet_v2@64*0.45",
]
RESULT = "layouts.json"
FORMATS = {"float32": None, "bfloat16": torch.bfloat16}
LAYOUTS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}
WAYS = tuple(product(FORMATS, LAYOUTS))
CLASSES = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, metavar="NAME@SIZE*SHARE")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--turns", type=int, default=9)
    return parser.parse_args()


def build(network: str) -> tuple[nn.Module, int]:
    """The network specified by NAME@SIZE*SHARE, and the size of its images."""
    name, _, size_and_share = network.partition("@")
    size, _, share = size_and_share.partition("*")
    model = build_model(name, CLASSES)
    traced = trace(model, (3, int(size), int(size)))
    loose = [group for group in traced.groups if not group.fixed]
    kept = {group.name: spread(group, round(group.width * float(share or 1))) for group in loose}
    return apply_keeps_(model, keeps_of(traced.groups, kept, traced.sizes)), int(size)


def step(model: nn.Module, hardware: Hardware, images: torch.Tensor) -> None:
    """One forward pass and, if the model is in training mode, a backward pass."""
    with torch.set_grad_enabled(model.training), striding_first(model):
        with hardware.autocast():
            outputs = model(images.contiguous(memory_format=hardware.memory_format))
        if model.training:
            outputs.float().square().mean().backward()


def measure(network: str, batch: int, turns: int) -> dict[str, Any]:
    """Time training steps of ``network`` and its forward passes as a teacher, in all variants."""
    model, size = build(network)
    images = torch.rand(batch, 3, size, size)
    chosen = choose_hardware(model, "cpu", amp=True)
    in_ways = [replace(chosen, dtype=FORMATS[way[0]], memory_format=LAYOUTS[way[1]]) for way in WAYS]
    row: dict[str, Any] = {"network": network, "batch": batch, "chosen": in_ways.index(chosen)}
    for use in ("training", "teacher"):
        placed = [hardware.place(deepcopy(model)).train(use == "training") for hardware in in_ways]
        found = times_ms([partial(step, *pair, images) for pair in zip(placed, in_ways, strict=True)], turns)
        ratios = [[turn[0] / ms for ms in turn] for turn in found]
        row[use] = {
            "ms": [statistics.median(times) for times in zip(*found, strict=True)],
            "speedup": [statistics.quantiles(values, n=4) for values in zip(*ratios, strict=True)],
        }
    return row


def shown(row: dict[str, Any]) -> list[list[str]]:
    """Two lines of the printed table; the choice is in bold."""
    lines = []
    for use in ("training", "teacher"):
        cells = [
            f"{ms:.0f} ms, {middle:.2f}x ({low:.2f} to {high:.2f})"
            for ms, (low, middle, high) in zip(row[use]["ms"], row[use]["speedup"], strict=True)
        ]
        cells[row["chosen"]] = f"**{cells[row['chosen']]}**"
        lines.append([row["network"], use, *cells])
    return lines


def main() -> None:
    """Measure, print, write."""
    args = arguments()
    stored = read_result(RESULT).get("processors", {})
    rows = [measure(network, args.batch, args.turns) for network in args.networks]
    stored[processor()] = {"rows": rows, "environment": environment()}
    write_result(RESULT, {"ways": WAYS, "processors": stored})
    print(table(["network", "use", *map(", ".join, WAYS)], [line for row in rows for line in shown(row)]))


if __name__ == "__main__":
    main()
