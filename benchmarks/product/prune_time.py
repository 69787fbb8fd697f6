"""Time and memory of pruning, as multiples of one plain forward pass of the same samples.

    python -m benchmarks.product.prune_time --data FOLDER --checkpoint cifar10_resnet56.pth

FOLDER is an image folder of CIFAR-10 (train/<class>/*, test/<class>/*). Pruning is scoring + Algorithm 2 + Algorithm 1;
forward passes and prunings alternate, each in this process. Memory is the process's peak, measured in one fresh process
for each number of samples. Prints a table; writes benchmarks/results/prune_time.json.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import environment, in_fresh_process, peak_memory_bytes, table, write_result
from catro_deploy.data import open_dataset
from catro_deploy.data.pixels import normalise
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint
from catro_deploy.progress import Silent
from catro_deploy.pruning.allocation import by_flops
from catro_deploy.pruning.scoring import score_channels
from catro_deploy.pruning.selection import choose_channels
from catro_deploy.pruning.solvers import Problem
from catro_deploy.settings import DataSettings, PruneSettings
from catro_deploy.stages.prune import labelled_batches

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
RESULT = "prune_time.json"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--model", default="cifar_resnet56")
    parser.add_argument("--samples", type=int, default=5120)
    parser.add_argument("--memory-samples", type=int, nargs="*", default=[5120, 20480])
    parser.add_argument("--activation-memory", type=float, default=1.0, help="GiB")
    parser.add_argument("--budget", default="45%flops")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-only", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def load_batches(args: argparse.Namespace, samples: int) -> list[Labelled]:
    """Draw ``samples`` training images, the same number of each of the ten classes."""
    data = open_dataset(DataSettings(name="imagefolder", root=args.data, validation=0.02), (32, 32), 3)
    per_class = samples // len(data.classes)
    drawn = labelled_batches(data.train, data.classes, per_class, 128, seed=0)
    return [(normalise(images, MEAN, STD), label) for images, label in drawn]


def prune_once(model: torch.nn.Module, batches: list[Labelled], args: argparse.Namespace) -> int:
    """Run all three algorithms; return the channels kept."""
    settings = PruneSettings(activation_memory=args.activation_memory, budget=args.budget)
    network = trace(model, (3, 32, 32))
    scored = score_channels(model, network, batches, settings, Silent())
    widths = by_flops(Problem(network, scored, settings)).widths
    groups = choose_channels(model, network, scored, widths, batches, settings, Silent())
    return sum(len(group.kept) for group in groups)


def forward_once(model: torch.nn.Module, batches: list[Labelled]) -> None:
    """Pass all samples through the network once."""
    with torch.inference_mode():
        for images, _ in batches:
            model(images)


def timed(action: object, *given: object) -> float:
    """Seconds that ``action(*given)`` takes."""
    start = time.perf_counter()
    action(*given)  # type: ignore[operator]
    return time.perf_counter() - start


def peak_of(args: argparse.Namespace, samples: int) -> dict[str, float]:
    """Peak memory of a fresh process that prunes on ``samples`` samples."""
    arguments = ["--memory-only", f"--samples={samples}", f"--data={args.data}"]
    arguments += [f"--checkpoint={args.checkpoint}", f"--model={args.model}", f"--budget={args.budget}"]
    arguments += [f"--activation-memory={args.activation_memory}"]
    return in_fresh_process(__spec__.name, *arguments)


def main() -> None:
    """Measure, print, write."""
    args = arguments()
    model = build_model(args.model, 10)
    load_checkpoint(model, args.checkpoint)
    batches = load_batches(args, args.samples)
    if args.memory_only:
        before = peak_memory_bytes()
        prune_once(model, batches, args)
        print(json.dumps({"samples": args.samples, "loaded_bytes": before, "peak_bytes": peak_memory_bytes()}))
        return
    forward_once(model, batches[:4])
    rounds = []
    for place in range(args.rounds):
        forward_s, prune_s = timed(forward_once, model, batches), timed(prune_once, model, batches, args)
        rounds.append({"forward_s": forward_s, "prune_s": prune_s, "ratio": prune_s / forward_s})
        print(f"round {place + 1}: forward {forward_s:.2f} s, pruning {prune_s:.2f} s", file=sys.stderr)
    ratios = [entry["ratio"] for entry in rounds]
    memory = [peak_of(args, samples) for samples in args.memory_samples]
    rows = [["pruning / one forward pass", f"{np.median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"]]
    for entry in memory:
        extra = (entry["peak_bytes"] - entry["loaded_bytes"]) / 2**30
        rows.append(
            [
                f"peak memory at {entry['samples']} samples, GiB",
                f"{entry['peak_bytes'] / 2**30:.2f}",
                f"{extra:.2f} of it by pruning",
            ]
        )
    print(table(["", "median", "spread"], rows))
    settings = {key: value.name if isinstance(value, Path) else value for key, value in vars(args).items()}
    write_result(
        RESULT,
        {
            "settings": settings,
            "rounds": rounds,
            "median_ratio": float(np.median(ratios)),
            "memory": memory,
            "environment": environment(),
        },
    )


if __name__ == "__main__":
    main()
