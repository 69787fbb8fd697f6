"""The paper's traffic-sign subtasks: CATRO against L1 at the same widths and at uniform widths, at the paper's FLOPs.

    python benchmarks/gtsrb.py --data FOLDER --checkpoint gtsrb_resnet20.pth            # the cuts of about 90%
    python benchmarks/gtsrb.py --data FOLDER --checkpoint gtsrb_resnet20.pth --cuts 90 97

FOLDER is what torchvision.datasets.GTSRB reads. All three prune ResNet-20 and fine-tune it in the same way. Accuracy is
that of the weights after the last epoch on the test images of the subtask's classes; no epoch is chosen
by it. Rows that are done stand in benchmarks/results/gtsrb.json and are not run again; a row that was stopped goes on.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import environment, read_result, table, write_result
from rows import finetune_and_judge, finish_in_own_process

from catro_deploy.files import file_hash
from catro_deploy.progress import Silent
from catro_deploy.runs import RunFolder
from catro_deploy.settings import DataSettings, FinetuneSettings, ModelSettings, PruneSettings, Settings
from catro_deploy.stages.prune import prune

RESULT = "gtsrb.json"
METHODS = {"catro": ("catro", "greedy"), "l1": ("l1", "greedy"), "l1-uniform": ("l1", "uniform")}
# Share of FLOPs that is cut (percent), by subtask and row of the paper's tables; the paper's accuracies of CATRO and L1
# after 200 epochs; and its caps on widths, half or 3/8.
CUTS = {
    ("speed_limits", 90): 90.75,
    ("direction_signs", 90): 90.80,
    ("speed_limits", 97): 97.72,
    ("direction_signs", 97): 97.80,
}
PAPER = {
    ("speed_limits", 90): (0.9939, 0.9923),
    ("direction_signs", 90): (0.9904, 0.9847),
    ("speed_limits", 97): (0.9697, 0.9575),
    ("direction_signs", 97): (0.9859, 0.9819),
}
MAX_WIDTH = {90: 0.5, 97: 0.375}


@dataclass(frozen=True)
class Row:
    """One network to prune and fine-tune."""

    subtask: str
    cut: int
    method: str
    seed: int

    @property
    def name(self) -> str:
        """Key in the results and name of the run folder."""
        return f"{self.subtask}-{self.cut}-{self.method}-seed{self.seed}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--cuts", type=int, nargs="+", choices=(90, 97), default=[90])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time, each on one thread if more than one")
    parser.add_argument("--work", type=Path, default=Path("runs/gtsrb"), help="where the run folders go")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def settings_of(row: Row, args: argparse.Namespace) -> Settings:
    """What decides a row; the same for all methods but for criterion and widths."""
    criterion, allocation = METHODS[row.method]
    return Settings(
        model=ModelSettings(
            name="cifar_resnet20",
            checkpoint=args.checkpoint,
            mean=(0.3403, 0.3121, 0.3214),
            std=(0.2724, 0.2608, 0.2669),
        ),
        data=DataSettings(name="gtsrb", root=args.data),
        prune=PruneSettings(
            classes=[row.subtask],
            budget=f"{100 - CUTS[row.subtask, row.cut]:.2f}%flops",
            criterion=criterion,
            allocation=allocation,
            max_width=1.0 if allocation == "uniform" else MAX_WIDTH[row.cut],
            seed=row.seed,
        ),
        finetune=FinetuneSettings(
            epochs=args.epochs, learning_rate=0.1, warmup_epochs=5, distill=0.5, ema=0.998, compile=True, seed=row.seed
        ),
    )


def run_row(row: Row, args: argparse.Namespace) -> None:
    """Prune, fine-tune and judge one row; write its result beside its run folder."""
    settings, run = settings_of(row, args), RunFolder(args.work / row.name)
    with run.lock():
        prune(settings, run, Silent())
    finetune_and_judge(row, settings, args.work)


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """One line a subtask and cut: the paper's figures and ours."""
    lines = []
    for (subtask, cut), (paper_catro, paper_l1) in PAPER.items():
        mine = [r for r in results.values() if (r["subtask"], r["cut"]) == (subtask, cut)]
        if mine:
            cells = [" / ".join(f"{r['accuracy']:.2%}" for r in mine if r["method"] == method) for method in METHODS]
            share = max(r["macs_share"] for r in mine)
            heads = [f"{subtask}, {1 - share:.2%} of MACs cut", f"{paper_catro:.2%}", f"{paper_l1:.2%}"]
            lines.append([*heads, *cells, f"{mine[0]['original_accuracy']:.2%}", mine[0]["epochs"]])
    heads = ["subtask", "paper CATRO", "paper L1", "CATRO", "L1, same widths", "L1, uniform", "original", "epochs"]
    return table(heads, lines)


def main() -> None:
    """Run the rows that are missing, print the table."""
    args = arguments()
    if args.row:
        torch.set_num_threads(1 if args.jobs > 1 else torch.get_num_threads())
        run_row(Row(**json.loads(args.row)), args)
        return
    args.work.mkdir(parents=True, exist_ok=True)
    rows = [Row(s, c, m, seed) for seed in args.seeds for m in args.methods for (s, c) in CUTS if c in args.cuts]
    stored = read_result(RESULT)
    results: dict[str, dict[str, Any]] = stored.get("rows", {})
    missing = [row for row in rows if results.get(row.name, {}).get("epochs") != args.epochs]
    flags = {name: getattr(args, name) for name in ("data", "checkpoint", "epochs", "jobs")}
    with ThreadPoolExecutor(args.jobs) as pool:
        finished = pool.map(lambda row: finish_in_own_process(__file__, row, args.work, flags), missing)
        for row, result in zip(missing, finished, strict=True):
            results[row.name] = result
            content = {"rows": results, "checkpoint_sha256": file_hash(args.checkpoint), "environment": environment()}
            write_result(RESULT, content)
    print(results_table(results))


if __name__ == "__main__":
    main()
