"""Time and memory of a complete pruning under a latency budget, with reconstruction but without the latency profile.

    python -m benchmarks.product.prune_whole --cifar10 FOLDER --photographs FOLDER --weights FOLDER \\
        [--networks NAME@SIZE ...]

The target is a Jetson, whose latency is estimated, so that nothing is profiled or timed here. This leaves measuring
worth, allocating, choosing channels and reconstructing layers, from 1,000 images, and the export to ONNX. One process
per network, on one thread. Forward passes of the unpruned network are timed before and after it. --weights holds
cifar10_resnet{20,56}.pth; other networks have random weights, with batch norms and a last layer fitted to the images.
Folders are image folders (train/<class>/*). Prints a table; writes benchmarks/results/prune_whole.json.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import update_bn

import catro_deploy
from benchmarks.common import environment, in_fresh_process, peak_memory_bytes, read_result, table, write_result
from catro_deploy.data import open_dataset
from catro_deploy.data.pixels import normalise
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint
from catro_deploy.settings import DataSettings
from catro_deploy.stages.prune import labelled_batches

RESULT = "prune_whole.json"
NETWORKS = ["cifar_resnet20@32", "cifar_resnet56@32", "torchvision:resnet50@224"]
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
IMAGES = 1000
# Batches of 50 images in a timed forward pass.
TIMED_BATCHES = 4
LOGITS_STD = 5.0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="names with the height and width of the images")
    for name in ("cifar10", "photographs", "weights"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--budget", default="0.5x")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Prune the network ``name`` in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model_name, _, size = name.partition("@")
    root = args.cifar10 if int(size) == 32 else args.photographs
    data = open_dataset(DataSettings(name="imagefolder", root=root), (int(size), int(size)), 3)
    drawn = labelled_batches(data.train, data.classes, IMAGES // len(data.classes), 50, seed=0)
    # Without labels, which would reveal that random weights guess; created when they are read, as by a DataLoader.
    batches = (normalise(images, MEAN, STD) for images, _ in drawn)
    model = build_model(model_name, len(data.classes))
    weights = args.weights / f"cifar10_{model_name.removeprefix('cifar_')}.pth"
    if weights.is_file():
        load_checkpoint(model, weights)
    else:
        some = [normalise(images, MEAN, STD) for images, _ in drawn[:4]]
        update_bn(some, model)
        balance_(model.eval(), torch.cat(some))
    forward_seconds = [seconds_per_pass(model.eval(), drawn)]
    before, began, cpu = peak_memory_bytes(), time.perf_counter(), time.process_time()
    pruned = catro_deploy.prune(model.eval(), batches, target="jetson-orin", budget=args.budget, compute="cpu")
    with tempfile.TemporaryDirectory() as folder:
        pruned.export(Path(folder) / "pruned.onnx")
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    forward_seconds.append(seconds_per_pass(model, drawn))
    assert pruned.plan.reconstruction is not None
    return {
        "network": name,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "forward_seconds": forward_seconds,
        "loaded_bytes": before,
        "peak_bytes": peak_memory_bytes(),
        "kl": [pruned.plan.reconstruction.kl_cut, pruned.plan.reconstruction.kl_reconstructed],
    }


@torch.inference_mode()
def seconds_per_pass(model: nn.Module, drawn: Sequence[Labelled]) -> float:
    """Seconds of a forward pass of IMAGES images, from that of the first batches, after one of the first batch."""
    batches = [normalise(images, MEAN, STD) for images, _ in drawn[:TIMED_BATCHES]]
    model(batches[0])
    began = time.perf_counter()
    for batch in batches:
        model(batch)
    return (time.perf_counter() - began) * IMAGES / sum(map(len, batches))


@torch.no_grad()
def balance_(model: nn.Module, images: torch.Tensor) -> None:
    """Set the last layer so that the logits of ``images`` have the mean 0 and the standard deviation LOGITS_STD.

    Unlike a trained one, a network that gives all images the same class, or has no confidence in its predictions, would
    be examined for a wrong input.
    """
    *_, head = (module for module in model.modules() if isinstance(module, nn.Linear))
    logits = model(images)
    head.bias.sub_(logits.mean(0))
    scale = LOGITS_STD / logits.std(0, keepdim=True).mT
    head.weight.mul_(scale)
    head.bias.mul_(scale[:, 0])


def main() -> None:
    """Measure each network in a separate process, print, write."""
    args = arguments()
    if args.one:
        print(json.dumps(measure(args.one, args)))
        return
    rows = read_result(RESULT).get("rows", {})
    for name in args.networks:
        folders = [f"--{folder}={getattr(args, folder)}" for folder in ("cifar10", "photographs", "weights")]
        found = in_fresh_process(__spec__.name, f"--one={name}", f"--budget={args.budget}", *folders)
        rows[name] = found | {"environment": environment()}
        write_result(RESULT, {"budget": args.budget, "images": IMAGES, "rows": rows})
    print(results_table(rows))


def results_table(rows: Mapping[str, Any]) -> str:
    """A line for each network."""
    shown = [
        [
            row["network"],
            f"{row['seconds']:.0f}",
            f"{row['cpu_seconds']:.0f}",
            f"{row['seconds'] / statistics.mean(row['forward_seconds']):.1f}",
            f"{row['peak_bytes'] / 2**30:.2f}",
            f"{row['kl'][0]:.3f} -> {row['kl'][1]:.3f}",
        ]
        for row in rows.values()
    ]
    header = ["network", "seconds", "of one core", "forward passes", "peak memory, GiB", "KL: cut -> reconstructed"]
    return table(header, shown)


if __name__ == "__main__":
    main()
