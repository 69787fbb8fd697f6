"""What reused pages and small batches save in pruning, training and evaluation on a CPU.

    OMP_NUM_THREADS=1 python -m benchmarks.product.page_faults [--rounds 3]

Each measurement is a fresh process: pruning (scoring and selection to half the multiply-accumulates), some training
steps, or the logits of eight batches, for EfficientNet-Lite0 at 224x224 and, for contrast, ResNet-20 at 32x32, with
random weights and drawn images. The variants alternate; figures are medians over the rounds. Memory is the peak of the
process, including images and PyTorch.
Prints a table; writes benchmarks/results/page_faults.json. Needs timm.
"""

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.common import environment, in_fresh_process, peak_memory_bytes, table, write_result
from benchmarks.product.memory import BUDGET, MEAN, STD, calibrate_, draw_batches
from catro_deploy import memory as pages
from catro_deploy.data.base import MemorySplit
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.features import images_at_once
from catro_deploy.models import build_model
from catro_deploy.progress import Silent
from catro_deploy.pruning.allocation import by_flops
from catro_deploy.pruning.scoring import score_channels
from catro_deploy.pruning.selection import choose_channels
from catro_deploy.pruning.solvers import Problem
from catro_deploy.settings import FinetuneSettings, PruneSettings
from catro_deploy.training import TrainingJob, fit, predict
from catro_deploy.training.normalised import NormalisedBatches


@dataclass(frozen=True)
class Case:
    """A network, with the sizes of its pruning and training."""

    model: str
    size: int
    classes: int
    samples: int
    batch_size: int
    training_batch: int
    training_steps: int


CASES = (
    Case("timm:efficientnet_lite0", 224, 2, 128, 128, training_batch=32, training_steps=8),
    Case("cifar_resnet20", 32, 10, 1280, 128, training_batch=128, training_steps=20),
)
REUSED, SMALL = "reused pages", "small batches"
WAYS = {
    "prune": ("before", REUSED, SMALL, f"{REUSED}, {SMALL}"),
    "train": ("before", REUSED),
    "evaluate": ("before", REUSED),
}
MEASURES = ("user_s", "kernel_s", "page_faults", "peak_bytes")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=3, metavar=("CASE", "WORK", "WAY"), help=argparse.SUPPRESS)
    return parser.parse_args()


def pruning(case: Case, way: str) -> Callable[[], object]:
    """Draw images and return a function that prunes the network on them."""
    model, shape = build_model(case.model, case.classes), (3, case.size, case.size)
    at_once = images_at_once(model, shape, case.batch_size) if SMALL in way else case.batch_size
    drawing = argparse.Namespace(classes=case.classes, samples=case.samples, size=case.size, batch_size=at_once)
    batches = NormalisedBatches(draw_batches(drawing), MEAN, STD)
    calibrate_(model, batches)
    network = trace(model, shape)

    def prune() -> None:
        settings = PruneSettings(budget=BUDGET)
        scored = score_channels(model, network, batches, settings, Silent())
        widths = by_flops(Problem(network, scored, settings)).widths
        choose_channels(model, network, scored, widths, batches, settings, Silent())

    return prune


def training(case: Case) -> Callable[[], object]:
    """Draw images and return a function that trains the network on them for one epoch, without validation."""
    model, images = build_model(case.model, case.classes), draw_split(case, case.training_batch * case.training_steps)
    none = MemorySplit(images.pixels[:0], images.labels[:0])
    settings = FinetuneSettings(epochs=1, batch_size=case.training_batch, compute="cpu", augment="none")

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder:
            job = TrainingJob(model, images, none, settings, MEAN, STD, "training")
            fit(job, Path(folder) / "state.safetensors", Silent())

    return train


def evaluation(case: Case) -> Callable[[], object]:
    """Draw images and return a function that computes the network's logits for them."""
    model, images = build_model(case.model, case.classes), draw_split(case, 8 * case.batch_size)
    return lambda: predict(model, images, MEAN, STD, case.batch_size)


def draw_split(case: Case, count: int) -> MemorySplit:
    """``count`` images of noise."""
    pixels = torch.randint(0, 256, (count, 3, case.size, case.size), dtype=torch.uint8)
    return MemorySplit(pixels, (torch.arange(count) % case.classes).numpy())


def measure(case: Case, work: str, way: str) -> dict[str, float]:
    """Do ``work`` in this process, and measure its time, page faults and peak memory."""
    torch.manual_seed(0)
    if REUSED not in way:
        pages._MALLOC = pages._Malloc(None)  # as without glibc: malloc stays as it is
    ways = {"prune": lambda: pruning(case, way), "train": lambda: training(case), "evaluate": lambda: evaluation(case)}
    act = ways[work]()
    before = resource.getrusage(resource.RUSAGE_SELF)
    act()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user_s": after.ru_utime - before.ru_utime,
        "kernel_s": after.ru_stime - before.ru_stime,
        "page_faults": after.ru_minflt - before.ru_minflt,
        "peak_bytes": peak_memory_bytes(),
    }


def measure_apart(place: int, work: str, way: str) -> dict[str, float]:
    """``measure`` in a fresh process."""
    found = in_fresh_process(__spec__.name, "--measure", str(place), work, way)
    print(f"{CASES[place].model} {work}, {way}: kernel {found['kernel_s']:.1f} s", file=sys.stderr)
    return found


def main() -> None:
    """Measure, print, write."""
    args = arguments()
    if args.measure:
        place, work, way = args.measure
        print(json.dumps(measure(CASES[int(place)], work, way)))
        return
    plan = [(place, work, way) for place in range(len(CASES)) for work in WAYS for way in WAYS[work]]
    rounds = [{job: measure_apart(*job) for job in plan} for _ in range(args.rounds)]
    rows: list[dict[str, Any]] = []
    for place, work, way in plan:
        found = [one[place, work, way] for one in rounds]
        medians = {name: median(run[name] for run in found) for name in MEASURES}
        rows.append({"model": CASES[place].model, "work": work, "way": way, **medians, "rounds": found})
    heads = ["network", "work", "way", "user, s", "kernel, s", "page faults, thousands", "peak memory, GiB"]
    cells = [
        [
            row["model"],
            row["work"],
            row["way"],
            f"{row['user_s']:.1f}",
            f"{row['kernel_s']:.1f}",
            f"{row['page_faults'] / 1e3:.0f}",
            f"{row['peak_bytes'] / 2**30:.2f}",
        ]
        for row in rows
    ]
    print(table(heads, cells))
    cases = [asdict(case) for case in CASES]
    write_result("page_faults.json", {"cases": cases, "rows": rows, "environment": environment()})


if __name__ == "__main__":
    main()
