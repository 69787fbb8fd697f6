"""Accuracy at equal measured latency: latency-aware CATRO against FLOPs CATRO and torch-pruning's L1, fine-tuned alike.

    python -m benchmarks.accuracy.equal_latency --data FOLDER --checkpoint gtsrb_resnet20.pth     # GTSRB, three budgets
    python -m benchmarks.accuracy.equal_latency --data FOLDER --checkpoint WEIGHTS --budgets 0.5x --seeds 0 1 2
    python -m benchmarks.accuracy.equal_latency --data FOLDER --checkpoint WEIGHTS --budgets --max-drop 0.5
    python -m benchmarks.accuracy.equal_latency --data FOLDER --checkpoint WEIGHTS --task cifar10 --budgets 0.5x
    python -m benchmarks.accuracy.equal_latency --data FOLDER --checkpoint WEIGHTS --model torchvision:mobilenet_v2 \\
        --size 64
    python -m benchmarks.accuracy.equal_latency --all                         # the tables of all machines, runs nothing

Every method prunes ResNet-20 (or --model) until its network, measured interleaved with the original (ONNX Runtime, one
thread), uses nearly all of the budget, but no more. With --max-drop, CATRO by latency and by FLOPs also search for the
smallest latency at which accuracy on validation images drops by at most that many points. All rows are first pruned,
one at a time; then fine-tuned, ``--jobs`` at a time; then measured again, one at a time. Accuracy is measured on the
test images with the weights after the last epoch; nothing is chosen by it.

Latencies, and the widths chosen by them, are specific to a machine: benchmarks/results/latency.json stores rows by
processor, and the tables show this machine's. Rows completed on it are not run again; an interrupted row resumes.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.accuracy.equal_latency_tables import MODEL, SEARCHED, machine_tables
from benchmarks.common import environment, processor, read_result, write_result
from benchmarks.peers import open_timer, prune_by_peer
from benchmarks.rows import finetune_and_judge, finish_in_own_process
from benchmarks.timed_widths import TimedWidths
from catro_deploy.errors import MissedError
from catro_deploy.files import file_hash
from catro_deploy.networks import load
from catro_deploy.progress import Silent
from catro_deploy.records import Budgets, Search
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load_if_there
from catro_deploy.settings import (
    AUTO,
    DataSettings,
    FinetuneSettings,
    ModelSettings,
    PruneSettings,
    Settings,
    VerifySettings,
)
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import prune
from catro_deploy.stages.search import search

RESULT = "latency.json"
TARGET = "x86-cpu"
# Method -> its name in the table, its settings; for torch-pruning, the multiple that it rounds widths to.
OURS = {
    "latency": ("CATRO by latency", {"allocation": "exact"}),
    "width": ("the same, width only", {"allocation": "exact", "depth": "never"}),
    "flops": ("CATRO by FLOPs", {"allocation": "flops"}),
}
PEERS = {
    "tp": ("torch-pruning L1", None),
    "tp8": ("torch-pruning L1, round_to=8", 8),
    "tp16": ("torch-pruning L1, round_to=16", 16),
}
# Methods for which --max-drop is searched.
SEARCHING = ("latency", "flops")
NAMES = {method: name for method, (name, _) in (OURS | PEERS).items()}
TASKS: dict[str, dict[str, Any]] = {
    "gtsrb": {
        "model": {"mean": (0.3403, 0.3121, 0.3214), "std": (0.2724, 0.2608, 0.2669)},
        "data": "gtsrb",
        "size": None,
        "classes": ["speed_limits"],
        "augment": "signs",
    },
    "cifar10": {
        "model": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)},
        "data": "imagefolder",
        "size": 32,
        "classes": [],
        "augment": "objects",
    },
}


@dataclass(frozen=True)
class Row:
    """One network to prune and fine-tune."""

    task: str
    budget: str
    method: str
    seed: int
    model: str = MODEL
    size: int | None = None

    @property
    def subject(self) -> str:
        """What is pruned: the task, and the network unless it is the default one."""
        network = [] if self.model == MODEL else [self.model.rpartition(":")[2], f"{self.size or 'its own size'}"]
        return "-".join([self.task, *network])

    @property
    def name(self) -> str:
        """Key in the results and name of the run folder."""
        return f"{self.subject}-{self.budget}-{self.method}-seed{self.seed}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="gtsrb")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--size", type=int, help="height and width of the images; default: the model's own")
    parser.add_argument("--budgets", nargs="*", default=["0.75x", "0.5x", "0.35x"])
    parser.add_argument(
        "--max-drop", type=float, nargs="*", default=[], help="search for budgets that lose at most these points"
    )
    parser.add_argument("--methods", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=1, help="fine-tunings at a time; if several, one thread each")
    parser.add_argument("--work", type=Path, default=Path("runs/latency"), help="where the run folders go")
    parser.add_argument("--all", action="store_true", help="run nothing, print the results of all machines")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.all and not (args.data and args.checkpoint):
        parser.error("--data and --checkpoint are required to run rows; --all prints the stored ones")
    return args


def rows_of(args: argparse.Namespace) -> list[Row]:
    """The requested rows, in order."""
    chosen = [(budget, method) for budget in args.budgets for method in args.methods]
    searching = [method for method in args.methods if method in SEARCHING]
    chosen += [(f"{SEARCHED}{drop:g}", method) for drop in args.max_drop for method in searching]
    return [Row(args.task, *one, seed, args.model, args.size) for seed in args.seeds for one in chosen]


def settings_of(row: Row, args: argparse.Namespace) -> Settings:
    """The settings of a row; methods differ only in how they prune. A budget to be searched is "auto"."""
    task = TASKS[row.task]
    how = OURS[row.method][1] if row.method in OURS else {"criterion": "l1"}
    drop = float(row.budget.removeprefix(SEARCHED)) if row.budget.startswith(SEARCHED) else None
    budget = row.budget if drop is None else AUTO
    return Settings(
        model=ModelSettings(name=row.model, checkpoint=args.checkpoint, **task["model"]),
        data=DataSettings(name=task["data"], root=args.data, size=row.size or task["size"]),
        prune=PruneSettings(target=TARGET, classes=task["classes"], budget=budget, seed=row.seed, **how),
        verify=VerifySettings(max_drop=drop),
        finetune=FinetuneSettings(
            epochs=args.epochs, learning_rate=0.1, distill=0.5, ema=0.998, compile=True, seed=row.seed,
            augment=task["augment"],
        ),
    )  # fmt: skip


def found_settings(row: Row, args: argparse.Namespace) -> Settings:
    """``settings_of``, with the found budget if one is searched; runs the search unless it is done."""
    settings, run = settings_of(row, args), RunFolder(args.work / row.name)
    if settings.prune.budget != AUTO:
        return settings
    found = load_if_there(Search, run) or search(settings, run, Silent())
    return settings.model_copy(
        update={"prune": settings.prune.model_copy(update={"budget": Budgets.parse(found.budget)})}
    )


def prune_row(row: Row, args: argparse.Namespace) -> str:
    """Prune one row into its run folder unless done; return why its budget cannot be met, or an empty text."""
    run = RunFolder(args.work / row.name)
    with run.lock():
        try:
            settings = found_settings(row, args)
            if not run.plan.is_file():
                if row.method in OURS:
                    prune(settings, run, Silent())
                else:
                    prune_by_peer(
                        settings, run, [PEERS[row.method][1]], TimedWidths(args.work / f"{row.subject}.widths.json")
                    )
        except MissedError as error:
            return error.problem
    return ""


def measure_row(row: Row, args: argparse.Namespace) -> dict[str, Any]:
    """Time the fine-tuned network of a row, interleaved with its original."""
    settings = settings_of(row, args)
    with open_timer(open_original(settings), settings, "standard") as timer:
        result = timer.measure(load(args.work / row.name))
    return {
        "ratio": result.speedup.ratio,
        "ratio_ci95": result.speedup.ratio_ci95,
        "us": result.candidate_us,
        "original_us": result.original_us,
        "warnings": list(result.warnings),
    }


def run_rows(rows: list[Row], args: argparse.Namespace) -> None:
    """Prune, fine-tune and measure the ``rows`` that are missing on this machine; store each as soon as it is done."""
    args.work.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = read_machines().get(processor(), {}).get("rows", {})
    missing = [row for row in rows if results.get(row.name, {}).get("epochs") != args.epochs]
    for row in missing:
        print(f"{row.name}: pruning", file=sys.stderr, flush=True)
        if unmet := prune_row(row, args):
            results[row.name] = asdict(row) | {"unmet": unmet, "epochs": args.epochs}
            keep(results, row.subject, args.checkpoint)
    missing = [row for row in missing if "unmet" not in results.get(row.name, {})]
    flags = {name: getattr(args, name) for name in ("data", "checkpoint", "epochs", "jobs")}
    with ThreadPoolExecutor(args.jobs) as pool:
        finished = pool.map(lambda row: finish_in_own_process(__spec__.name, row, args.work, flags), missing)
        for row, result in zip(missing, finished, strict=True):
            results[row.name] = result
            keep(results, row.subject, args.checkpoint)
    for row in rows:
        if not {"measured", "unmet"} & set(results[row.name]) and (args.work / row.name).is_dir():
            results[row.name]["measured"] = measure_row(row, args)
            keep(results, row.subject, args.checkpoint)


def read_machines() -> dict[str, dict[str, Any]]:
    """By processor: its environment, the checkpoints by task, and the rows by name."""
    machines: dict[str, dict[str, Any]] = read_result(RESULT).get("machines", {})
    return machines


def keep(results: dict[str, dict[str, Any]], subject: str, checkpoint: Path) -> None:
    """Write ``results`` as those of this machine, and keep those of other machines."""
    machines = read_machines()
    checkpoints = machines.get(processor(), {}).get("checkpoints", {}) | {subject: file_hash(checkpoint)}
    machines[processor()] = {"environment": environment(), "checkpoints": checkpoints, "rows": results}
    write_result(RESULT, {"machines": machines})


def main() -> None:
    """Run the rows that are missing, print the tables."""
    args = arguments()
    if args.row:
        row = Row(**json.loads(args.row))
        torch.set_num_threads(1 if args.jobs > 1 else torch.get_num_threads())
        finetune_and_judge(row, found_settings(row, args), args.work)
        return
    if not args.all:
        run_rows(rows_of(args), args)
    shown = {name: of for name, of in read_machines().items() if args.all or name == processor()}
    print("\n\n".join(machine_tables(name, of["rows"], NAMES) for name, of in shown.items()))


if __name__ == "__main__":
    main()
