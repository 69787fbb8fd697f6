"""The paper's tables, reproduced: CATRO against L1, FPGM and torch-pruning's group norm, at equal FLOPs and training.

    python -m benchmarks.paper.tables --table 1 --gtsrb FOLDER --weights FOLDER [--seeds 0 1 2] \\
        [--only 'speed_limits-97']
    python -m benchmarks.paper.tables --table 2 --cifar10 FOLDER --weights FOLDER --device cuda --minutes 9
    python -m benchmarks.paper.tables                                       # writes the page, runs nothing

1: two subtasks of GTSRB, and channels chosen for the other subtask; 2: CIFAR-10; 3: an ablation of the method; 4: the
paper's fine-tuning recipe (200 epochs) against ``fast`` (60). All other rows are trained with ``fast``: those of table
3 and those named "briefly" for 10 epochs; "ours" for 20 with its own recipe.
--weights holds gtsrb_resnet20.pth and cifar10_resnet{20,32,56}.pth; --gtsrb is the folder that torchvision's GTSRB
reads, --cifar10 a folder of images by class. All methods cut at least the same multiply-accumulates and are fine-tuned
alike. Accuracy is measured on the test images with the weights after the last epoch; no epoch is chosen by it.

Completed rows are stored in benchmarks/results/paper.json and not run again. --minutes stops after the epoch in which
the time is up; the same command resumes from there. tools/archives.py packs the images for another machine. Writes
docs/paper.md.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import DOCS, environment, read_result, write_result
from benchmarks.paper.one_pass import prune_in_one_pass
from benchmarks.paper.page import page
from benchmarks.paper.rows import METHODS, PEERS, TRAINING, Row, rows_of
from benchmarks.peers import prune_to_widths, write_groups
from benchmarks.rows import finetune_and_judge, finish_in_own_process
from catro_deploy.files import write_text
from catro_deploy.progress import Progress, Silent, Task
from catro_deploy.records import GroupPlan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings, load_settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import prune

RESULT = "paper.json"
PAGE = DOCS / "paper.md"
PIXELS = {
    "gtsrb": {"mean": [0.3403, 0.3121, 0.3214], "std": [0.2724, 0.2608, 0.2669]},
    "cifar10": {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2023, 0.1994, 0.2010]},
}


class OutOfTimeError(Exception):
    """The time limit is reached; raised after a complete epoch."""


class Deadline(Silent):
    """Stops the work at the first end of an epoch after ``end`` (of time.monotonic)."""

    def __init__(self, end: float) -> None:
        self._end = end

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        """Check the time when the bar's text changes, which happens after the state of an epoch is written."""
        with super().task(title, total, done) as task:
            yield _Watched(task, self._end)


class _Watched:
    def __init__(self, task: Task, end: float) -> None:
        self._task, self._end = task, end

    def advance(self, steps: float = 1) -> None:
        self._task.advance(steps)

    def describe(self, text: str) -> None:
        if time.monotonic() > self._end:
            raise OutOfTimeError


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, nargs="+", choices=(1, 2, 3, 4), default=[])
    parser.add_argument("--gtsrb", type=Path, default=Path("data"))
    parser.add_argument("--cifar10", type=Path, default=Path("data"))
    parser.add_argument("--weights", type=Path, default=Path("weights"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="rows whose names match this pattern")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's; such rows are not stored")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time, each on one thread if more than one")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--work", type=Path, default=Path("runs/paper"), help="where the run folders go")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def settings_of(row: Row, args: argparse.Namespace, classes: Sequence[str]) -> Settings:
    """The settings of a row for ``classes``; methods differ only in criterion and widths."""
    gtsrb, epochs = row.data == "gtsrb", args.epochs or row.epochs
    finetune = {
        "recipe": row.recipe, "augment": "signs" if gtsrb else "objects", "seed": row.seed, "compute": args.device,
        "compile": True,  # with any recipe: it only changes how long a step takes
    }  # fmt: skip
    return load_settings(
        None,
        {
            "model": {
                "name": row.model,
                "checkpoint": args.weights / f"{row.data}_{row.model.removeprefix('cifar_')}.pth",
                **PIXELS[row.data],
            },
            "data": {"name": "gtsrb" if gtsrb else "imagefolder", "root": args.gtsrb if gtsrb else args.cifar10},
            "prune": {
                "classes": list(classes),
                "budget": f"{row.kept_percent}%flops",
                "seed": row.seed,
                "compute": args.device,
                "reconstruct": False,  # the paper's method and the others as published
                **METHODS[row.method],
                **(row.prune or {}),
            },
            "finetune": {**finetune, **TRAINING.get(row.method, {}), **({"epochs": epochs} if epochs else {})},
        },
    )


def prune_row(row: Row, settings: Settings, run: RunFolder, args: argparse.Namespace) -> None:
    """Prune the network of ``row`` by its method; the classes of ``chosen_for``, if any, choose the channels."""
    if row.method in PEERS:
        widths = {group.name: len(group.kept) for group in chosen_by_catro(row, row.classes, args)}
        prune_to_widths(settings, run, PEERS[row.method], widths)
    elif row.method == "one-pass":
        prune_in_one_pass(settings, run)
    elif row.chosen_for:
        groups = chosen_by_catro(row, row.chosen_for, args)
        write_groups(settings, open_original(settings), groups, run)
    else:
        prune(settings, run, Silent())


def chosen_by_catro(row: Row, classes: Sequence[str], args: argparse.Namespace) -> Sequence[GroupPlan]:
    """What CATRO keeps of the network of ``row`` if pruned for ``classes``, in a run folder next to the row's."""
    run = RunFolder(args.work / f"{row.name}-chooser")
    with run.lock():
        return prune(settings_of(replace(row, method="catro"), args, classes), run, Silent()).groups


def run_row(row: Row, args: argparse.Namespace, progress: Progress) -> None:
    """Prune, fine-tune and evaluate one row; write its result next to its run folder."""
    settings, run = settings_of(row, args, row.classes), RunFolder(args.work / row.name)
    with run.lock():
        if not run.plan.is_file():
            prune_row(row, settings, run, args)
        load_plan(run)
    finetune_and_judge(row, settings, args.work, progress)


def run_missing(rows: list[Row], args: argparse.Namespace) -> None:
    """Run the ``rows``, and store their results."""
    end = time.monotonic() + 60 * args.minutes
    names = ("gtsrb", "cifar10", "weights", "device", "jobs")
    flags = {name: getattr(args, name) for name in names} | ({"epochs": args.epochs} if args.epochs else {})

    def finish(row: Row) -> dict[str, Any] | None:
        left = (end - time.monotonic()) / 60
        if left <= 0:
            return None
        try:
            return finish_in_own_process(__spec__.name, row, args.work, {**flags, "minutes": left})
        except FileNotFoundError:  # the time was up before the last epoch
            return None

    with ThreadPoolExecutor(args.jobs) as pool:
        for row, result in zip(rows, pool.map(finish, rows), strict=True):
            if result is None:
                print(f"{row.name}: not finished, the same command resumes it", file=sys.stderr)
            elif not args.epochs:
                # Read again: another process, on other cores, may have added its rows in the meantime.
                stored = read_result(RESULT).get("rows", {}) | {row.name: {**result, "environment": environment()}}
                write_result(RESULT, {"rows": dict(sorted(stored.items()))})


def main() -> None:
    """Run the rows that are missing, write the page."""
    args = arguments()
    if args.row:
        torch.set_num_threads(1 if args.jobs > 1 else torch.get_num_threads())
        try:
            run_row(Row(**json.loads(args.row)), args, Deadline(time.monotonic() + 60 * args.minutes))
        except OutOfTimeError:
            print("time is up")
        return
    args.work.mkdir(parents=True, exist_ok=True)
    done = read_result(RESULT).get("rows", {})
    wanted = [row for table in args.table for row in rows_of(table, args.seeds) if args.only.search(row.name)]
    run_missing([row for row in wanted if row.name not in done or args.epochs], args)
    text = page(read_result(RESULT).get("rows", {}))
    write_text(PAGE, text)
    print(text)


if __name__ == "__main__":
    main()
