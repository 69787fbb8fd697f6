"""Memory and time of scoring and selection at 224x224 with 1,000 classes, in multiples of one plain forward pass.

    python -m benchmarks.product.memory [--samples 5120] [--classes 1000] [--models torchvision:resnet50 ...]

Each network runs in a fresh process, which first passes all samples through the network and then prunes it to half its
multiply-accumulates: tracing, scoring, Algorithm 2 and Algorithm 1. Images are drawn: a coarse random picture for each
class, with noise. Weights are random, and normalisations have the statistics of the images. Memory is the peak of the
process, including images and PyTorch. Prints a table; writes benchmarks/results/memory.json, where rows of other
networks are kept.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.common import environment, in_fresh_process, peak_memory_bytes, read_result, table, write_result
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.models import build_model
from catro_deploy.progress import Silent
from catro_deploy.pruning.allocation import by_flops
from catro_deploy.pruning.scoring import score_channels
from catro_deploy.pruning.selection import choose_channels
from catro_deploy.pruning.solvers import Problem
from catro_deploy.settings import PruneSettings
from catro_deploy.training.normalised import NormalisedBatches

MODELS = ["torchvision:resnet50", "torchvision:efficientnet_b0"]
BUDGET = "50%flops"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CALIBRATION_IMAGES = 64
CALIBRATION_BATCH = 8


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--samples", type=int, default=5120)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=128, help="at most; a batch has one class")
    parser.add_argument("--activation-memory", type=float, default=PruneSettings().activation_memory, help="GiB")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    return parser.parse_args()


def draw_batches(args: argparse.Namespace) -> list[Labelled]:
    """uint8 images class by class; the first classes get one more if ``samples`` is not a multiple of their number."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    for label in range(args.classes):
        count = args.samples // args.classes + (label < args.samples % args.classes)
        coarse = torch.rand(1, 3, 7, 7, generator=generator) * 255
        picture = nn.functional.interpolate(coarse, size=(args.size, args.size), mode="bilinear")
        noise = torch.randn(count, 3, args.size, args.size, generator=generator) * 32
        pixels = (picture + noise).clamp_(0, 255).to(torch.uint8)
        batches += [(piece, label) for piece in torch.split(pixels, args.batch_size)]
    return batches


def calibrate_(model: nn.Module, batches: Sequence[Labelled]) -> None:
    """Estimate the normalisation statistics of ``model`` on some images, so that feature maps have a normal scale."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    step = max(1, len(batches) // CALIBRATION_IMAGES)
    images = torch.cat([batches[place][0][:1] for place in range(0, len(batches), step)])
    with torch.no_grad():
        for few in torch.split(images, CALIBRATION_BATCH):  # a single batch would fragment the heap, which counts
            model.train()(few)
    model.eval()


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Prune ``args.model`` in this process; return the seconds of each part and the peak memory."""
    pixels = draw_batches(args)
    batches = NormalisedBatches(pixels, MEAN, STD)
    model = build_model(args.model, args.classes)
    calibrate_(model, batches)
    settings = PruneSettings(activation_memory=args.activation_memory)
    loaded_bytes = peak_memory_bytes()
    clock, work = [time.perf_counter()], [time.process_time()]

    def lap() -> None:
        clock.append(time.perf_counter())
        work.append(time.process_time())

    with torch.inference_mode():
        for images, _ in batches:
            model(images)
    lap()
    network = trace(model, (3, args.size, args.size))
    lap()
    scored = score_channels(model, network, batches, settings, Silent())
    lap()
    widths = by_flops(Problem(network, scored, settings)).widths
    lap()
    groups = choose_channels(model, network, scored, widths, batches, settings, Silent())
    lap()
    seconds, cpu_seconds = spans(clock), spans(work)
    return {
        "model": args.model,
        **seconds,
        "ratio": pruning_share(seconds),
        "cpu": cpu_seconds,
        "cpu_ratio": pruning_share(cpu_seconds),
        "groups": sum(len(group.kept) < group.width for group in groups),
        "loaded_bytes": loaded_bytes,
        "peak_bytes": peak_memory_bytes(),
    }


def spans(marks: Sequence[float]) -> dict[str, float]:
    """Seconds of each part, from the times between them."""
    parts = ("forward_s", "trace_s", "score_s", "allocate_s", "select_s")
    return {part: end - start for part, start, end in zip(parts, marks, marks[1:], strict=False)}


def pruning_share(seconds: dict[str, float]) -> float:
    """Scoring and selection in multiples of one forward pass."""
    return (seconds["score_s"] + seconds["select_s"]) / seconds["forward_s"]


def measure_apart(args: argparse.Namespace, model: str) -> dict[str, Any]:
    """``measure`` in a fresh process."""
    arguments = ["--model", model]
    for name in ("samples", "classes", "size", "batch_size", "activation_memory"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    found = in_fresh_process(__spec__.name, *arguments)
    print(f"{model}: {found['ratio']:.2f} forward passes", file=sys.stderr)
    return found


def main() -> None:
    """Measure, print, write."""
    args = arguments()
    if args.model:
        print(json.dumps(measure(args)))
        return
    stored = {row["model"]: row for row in read_result("memory.json").get("rows", [])}
    rows = [measure_apart(args, model) | {"environment": environment()} for model in args.models]
    heads = [
        "network",
        "one forward pass, s",
        "scoring, s",
        "selection, s",
        "both / forward",
        "in CPU time",
        "peak memory, GiB",
    ]
    cells = [
        [
            row["model"],
            f"{row['forward_s']:.0f}",
            f"{row['score_s']:.0f}",
            f"{row['select_s']:.0f}",
            f"{row['ratio']:.2f}",
            f"{row['cpu_ratio']:.2f}",
            f"{row['peak_bytes'] / 2**30:.2f}",
        ]
        for row in rows
    ]
    print(table(heads, cells))
    kept = ("samples", "classes", "size", "batch_size", "activation_memory")
    settings = {**{name: getattr(args, name) for name in kept}, "budget": BUDGET}
    stored |= {row["model"]: row for row in rows}
    write_result("memory.json", {"settings": settings, "rows": list(stored.values())})


if __name__ == "__main__":
    main()
