"""Fronts of accuracy against measured latency, at five budgets: ours, the paper's, torch-pruning's, Model Optimizer's.

    python -m benchmarks.accuracy.front --gtsrb FOLDER --cifar10 FOLDER --photographs FOLDER --weights FOLDER \\
        --tasks resnet20-gtsrb [--methods ours 'torch-pruning L1'] [--budgets 0.5x] [--trainings none] \\
        [--seeds 0 1 2] [--all] [--stale]
    python -m benchmarks.accuracy.front                                     # writes page and pictures, runs nothing

Tasks, pruning methods and training recipes are those of benchmarks/accuracy/reconstruction.py, and rows are made in the
same way: pruned to a share of the original's latency, timed again interleaved with the original, trained, and evaluated
on the test images. "paper" is CATRO by multiply-accumulates without reconstruction. torch-pruning prunes all layers by
one ratio; for FastNAS of Model Optimizer see benchmarks/modelopt_peer.py. If a budget cannot be met, the row records
this. Networks are trained after pruning by a selection of methods (front_selection.py) unless --all is
given. The weights of MobileNetV2 are made by `catro-deploy train --model torchvision:mobilenet_v2 --data gtsrb
-o data.size=96 --epochs 5 -o train.augment=signs`, with mean and std of DATASETS.

Completed rows are stored in benchmarks/results/front.json or reconstruction.json and not run again, unless --stale is
given and older code made them. Writes docs/fronts.md and docs/front_*.svg.
"""

import argparse
import json
import re
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.accuracy import reconstruction
from benchmarks.accuracy.front_page import write_page
from benchmarks.accuracy.front_rows import BUDGETS, RESULT, TASKS, TRAINED, WAYS, rows_of, stored_rows
from benchmarks.accuracy.front_selection import is_selected
from benchmarks.accuracy.reconstruction_rows import FASTNAS, Row
from benchmarks.provenance import SOURCES, is_current
from benchmarks.rows import run_missing
from catro_deploy.errors import MissedError
from catro_deploy.files import write_json, write_text


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[])
    parser.add_argument("--methods", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--budgets", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--trainings", nargs="+", choices=TRAINED, default=list(TRAINED))
    for name in reconstruction.FOLDERS:
        parser.add_argument(f"--{name}", type=Path, default=Path("weights" if name == "weights" else "data"))
    parser.add_argument("--all", action="store_true", help="also rows that are not in the default selection")
    parser.add_argument(
        "--stale", action="store_true", help="also rows that older code made; needs a --work without their results"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="rows whose names match this pattern")
    parser.add_argument("--work", type=Path, default=Path("runs/front"), help="where the run folders go")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time; only for rows that are already pruned")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_row(row: Row, args: argparse.Namespace) -> None:
    """Run one row, or record why it cannot be run: a missed budget is not tried again for other trainings."""
    missed, written = args.work / f"{row.pruned_name}.missed", args.work / f"{row.name}.json"
    if not missed.is_file():
        try:
            reconstruction.run_row(row, args)
        except MissedError as error:
            write_text(missed, error.problem)
    if missed.is_file():
        result = asdict(row) | {"unmet": missed.read_text(encoding="utf-8")}
    else:
        result = json.loads(written.read_text(encoding="utf-8"))
    tool = "nvidia-modelopt" if row.pruning == FASTNAS else "torch-pruning"
    write_json(written, result | {"versions": {name: version(name) for name in ("onnxruntime", tool)}})


def main() -> None:
    """Run the rows that are missing, write page and pictures."""
    args = arguments()
    torch.set_num_threads(1)
    if args.row:
        run_row(Row(**json.loads(args.row)), args)
        return
    done = {name for name, row in stored_rows().items() if not args.stale or is_current(row, SOURCES)}
    rows = rows_of(args.tasks, args.methods, args.budgets, args.trainings, args.seeds)
    wanted = [row for row in rows if (args.all or is_selected(row)) and args.only.search(row.name)]
    missing = [row for row in wanted if row.name not in done]
    flags = {name: getattr(args, name) for name in reconstruction.FOLDERS}
    run_missing(__spec__.name, RESULT, missing, args.work, flags, args.jobs, stale=args.stale)
    print(write_page(stored_rows()))


if __name__ == "__main__":
    main()
