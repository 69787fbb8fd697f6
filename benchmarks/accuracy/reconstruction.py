"""Accuracy after pruning compared with other tools: after the cut, after reconstruction, and after little training.

    python -m benchmarks.accuracy.reconstruction --cifar10 FOLDER --gtsrb FOLDER --photographs FOLDER \\
        --weights FOLDER [--cases resnet20-cifar10] [--ablation] [--seeds 0 1 2] [--only 'ours-gentle']
    python -m benchmarks.accuracy.reconstruction                            # writes the page, runs nothing

Every method prunes to the same share of the original's latency, measured on this machine. torch-pruning prunes all
layers by one ratio, the smallest that meets the budget twice, with any widths and with multiples of 8 and of 16; the
network that keeps the most multiply-accumulates is used. A network that clearly misses the budget when measured again
is rejected. "ours" is the default, "before" the same tool without reconstruction, trained with the recipe ``fast``.
--ablation changes one thing at a time. --weights holds the files named in CASES; that of MobileNetV3 is made by
`catro-deploy train --data gtsrb --size 64 --epochs 8`, with mean and std of DATASETS. Accuracy is measured on the test
images with the weights after the last step; no step is chosen by it. Without reconstruction, "no training" is evaluated
with re-estimated batch norm statistics.

Completed rows are stored in benchmarks/results/reconstruction.json and not run again. Writes docs/reconstruction.md.
"""

import argparse
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.accuracy.reconstruction_page import page
from benchmarks.accuracy.reconstruction_rows import (
    CASES,
    FASTNAS,
    PEERS,
    PRUNINGS,
    RECIPES,
    TRAININGS,
    Row,
    data_sections,
    rows_of,
)
from benchmarks.common import DOCS, read_result
from benchmarks.modelopt_peer import prune_by_fastnas
from benchmarks.peers import measured_ratio, prune_by_peer
from benchmarks.rows import finetune_and_judge, run_missing
from benchmarks.timed_widths import TimedWidths
from catro_deploy.budget import Budget
from catro_deploy.files import write_json, write_text
from catro_deploy.progress import Silent
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings, load_settings
from catro_deploy.stages.prune import prune

RESULT = "reconstruction.json"
PAGE = DOCS / "reconstruction.md"
# Shares of its expected latency, and of its budget, that a network may use when measured again, by the nearer end of
# the interval.
LEAST_USED, MOST_USED = 0.8, 1.1
# Maximum width of that interval, as a share of the measured ratio.
WIDEST_INTERVAL = 0.1
# Widths that torch-pruning may choose are multiples of one of these; None: any.
ROUND_TO = (None, 8, 16)
FOLDERS = ("gtsrb", "cifar10", "photographs", "weights")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=[name for name in CASES if CASES[name].budgets], default=[])
    parser.add_argument("--ablation", action="store_true")
    for name in FOLDERS:
        parser.add_argument(f"--{name}", type=Path, default=Path("weights" if name == "weights" else "data"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="rows whose names match this pattern")
    parser.add_argument("--work", type=Path, default=Path("runs/reconstruction"), help="where the run folders go")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time; only for rows that are already pruned")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def settings_of(row: Row, args: argparse.Namespace) -> Settings:
    """The settings of a row."""
    case = CASES[row.case]
    sections = data_sections(case, args)
    finetune = sections.pop("finetune") | {"seed": row.seed, **RECIPES[row.recipe], **TRAININGS[row.training]}
    pruning = {"classes": list(case.classes), "budget": row.budget, **PRUNINGS[row.pruning]}
    return load_settings(None, {**sections, "prune": pruning, "finetune": finetune})


class DisturbedError(RuntimeError):
    """A latency measurement was disturbed by other work on the machine: try it again."""


def prune_row(row: Row, settings: Settings, folder: Path) -> Path:
    """The folder of the pruned network, created if it does not exist, with its latency measured again.

    Raises:
        MissedError: no network meets the budget.
        DisturbedError: the interval of the second measurement is too wide, or it does not agree with the first.
    """
    run, ratio = RunFolder(folder / row.pruned_name), folder / f"{row.pruned_name}.latency.json"
    timed = TimedWidths(folder / f"{row.case}.widths.json")
    with run.lock():
        if not run.plan.is_file():
            if row.pruning in PEERS:
                prune_by_peer(settings, run, ROUND_TO, timed, PEERS[row.pruning])
            elif row.pruning == FASTNAS:
                prune_by_fastnas(settings, run, timed, folder / f"{row.case}.fastnas.pth")
            else:
                prune(settings, run, Silent())
        if not ratio.is_file():
            measured, plan = measured_ratio(settings, run), load_plan(run)
            if misses(measured, settings.prune.given_budget, expected_ratio(plan, timed)):
                if plan.latency is None:
                    timed.forget(plan.groups)
                run.plan.unlink()  # the next call prunes again
                raise DisturbedError(f"{row.pruned_name} used {measured['latency_ratio']:.3f}x when measured again.")
            if is_vague(measured):
                raise DisturbedError(f"{row.pruned_name} was measured with an interval of {measured}.")
            write_json(ratio, measured)
    return run.path


def expected_ratio(plan: Plan, timed: TimedWidths) -> float:
    """The share of the original's latency that a pruned network is expected to take.

    Ours nearly use their budget. With the round widths of another tool, a network may be far below it, but not far
    below its first measurement.
    """
    return timed.ratio(plan.groups) if plan.latency is None else Budget.parse(plan.budget).limit(1.0)


def misses(measured: Mapping[str, Any], budget: Budget, expected: float) -> bool:
    """Whether a network is above ``budget``, or below its ``expected`` share, by more than other work explains.

    A budget in microseconds cannot be checked by a share of the original's latency.
    """
    low, high = measured["latency_ratio_ci95"]
    return budget.is_share and bool(low > MOST_USED * budget.limit(1.0) or high < LEAST_USED * expected)


def is_vague(measured: Mapping[str, Any]) -> bool:
    """Whether the interval is too wide to compare networks."""
    low, high = measured["latency_ratio_ci95"]
    return bool(high - low > WIDEST_INTERVAL * measured["latency_ratio"])


def run_row(row: Row, args: argparse.Namespace) -> None:
    """Prune, train and evaluate one row; write its result next to its run folder."""
    settings = settings_of(row, args)
    pruned, run = prune_row(row, settings, args.work), RunFolder(args.work / row.name)
    if not run.plan.is_file():
        shutil.copytree(pruned, run.path, ignore=shutil.ignore_patterns("*.lock"))
    reconstruction = load_plan(run).reconstruction
    finetune_and_judge(row, settings, args.work)
    written = args.work / f"{row.name}.json"
    latency = json.loads((args.work / f"{row.pruned_name}.latency.json").read_text())
    extra = {} if reconstruction is None else {"kl": [reconstruction.kl_cut, reconstruction.kl_reconstructed]}
    write_json(written, {**json.loads(written.read_text()), **latency, **extra})


def main() -> None:
    """Run the rows that are missing, write the page."""
    args = arguments()
    torch.set_num_threads(1)
    if args.row:
        run_row(Row(**json.loads(args.row)), args)
        return
    flags = {name: getattr(args, name) for name in FOLDERS}
    rows = [row for case in args.cases for row in rows_of(case, args.seeds, ablation=args.ablation)]
    run_missing(__spec__.name, RESULT, [row for row in rows if args.only.search(row.name)], args.work, flags, args.jobs)
    found: dict[str, Any] = read_result(RESULT).get("rows", {})
    text = page(found)
    write_text(PAGE, text)
    print(text)


if __name__ == "__main__":
    main()
