"""Accuracy at equal measured latency: latency-aware CATRO against FLOPs CATRO and torch-pruning's L1, fine-tuned alike.

    python benchmarks/latency.py --data FOLDER --checkpoint gtsrb_resnet20.pth                   # GTSRB, three budgets
    python benchmarks/latency.py --data FOLDER --checkpoint gtsrb_resnet20.pth --budgets 0.5x --seeds 0 1 2
    python benchmarks/latency.py --task cifar10 --data FOLDER --checkpoint cifar10_resnet20.pth --budgets 0.5x

Every method prunes ResNet-20 until its network, measured in turns with the original (ONNX Runtime, one thread), uses at
most the budget and nearly all of it. First all rows are pruned, one at a time; then they are fine-tuned, ``--jobs``
at a time; then each is measured again, one at a time. Accuracy is that of the weights after the last epoch on the test
images; nothing is chosen by it. Rows that are done stand in benchmarks/results/latency.json and are not run again; a
row that was stopped goes on.
"""

import argparse
import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from common import environment, read_result, table, write_result
from torch import nn

from catro_deploy.data import Subset, open_dataset
from catro_deploy.errors import MissedError
from catro_deploy.files import file_hash, write_json
from catro_deploy.graph.trace import Network, trace
from catro_deploy.networks import load
from catro_deploy.plans import load_plan
from catro_deploy.profiling.trial import Trial, trial
from catro_deploy.progress import Silent
from catro_deploy.protocols import load_latency_protocol
from catro_deploy.records import Budget, GroupPlan, Plan
from catro_deploy.runs import RunFolder
from catro_deploy.settings import DataSettings, FinetuneSettings, ModelSettings, PruneSettings, Settings
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.original import Original, open_original, use_of
from catro_deploy.stages.prune import labelled_batches, prune, write_pruning
from catro_deploy.targets import load_target
from catro_deploy.training.augment import normalise
from catro_deploy.training.evaluate import accuracy, predict

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
NAMES = {method: name for method, (name, _) in (OURS | PEERS).items()}
TASKS: dict[str, dict[str, Any]] = {
    "gtsrb": {
        "model": {"mean": (0.3403, 0.3121, 0.3214), "std": (0.2724, 0.2608, 0.2669)},
        "data": {"name": "gtsrb"},
        "classes": ["speed_limits"],
        "augment": "signs",
    },
    "cifar10": {
        "model": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)},
        "data": {"name": "imagefolder", "size": 32},
        "classes": [],
        "augment": "objects",
    },
}
# Ratios that torch-pruning is tried with: halvings of the interval in which the budget is met.
HALVINGS = 7
NEARLY_ALL = 0.97


@dataclass(frozen=True)
class Row:
    """One network to prune and fine-tune."""

    task: str
    budget: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """Key in the results and name of the run folder."""
        return f"{self.task}-{self.budget}-{self.method}-seed{self.seed}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="gtsrb")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--model", default="cifar_resnet20")
    parser.add_argument("--budgets", nargs="+", default=["0.75x", "0.5x", "0.35x"])
    parser.add_argument("--methods", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=1, help="fine-tunings at a time; more than one: a thread each")
    parser.add_argument("--work", type=Path, default=Path("runs/latency"), help="where the run folders go")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def settings_of(row: Row, args: argparse.Namespace) -> Settings:
    """What decides a row; the same for all methods but for how they prune."""
    task = TASKS[row.task]
    how = OURS[row.method][1] if row.method in OURS else {"criterion": "l1"}
    return Settings(
        model=ModelSettings(name=args.model, checkpoint=args.checkpoint, **task["model"]),
        data=DataSettings(root=args.data, **task["data"]),
        prune=PruneSettings(target=TARGET, classes=task["classes"], budget=row.budget, seed=row.seed, **how),
        finetune=FinetuneSettings(
            epochs=args.epochs, learning_rate=0.1, distill=0.5, ema=0.998, compile=True, seed=row.seed,
            augment=task["augment"],
        ),
    )  # fmt: skip


def prune_row(row: Row, args: argparse.Namespace) -> str:
    """Prune one row into its run folder, unless that is done; what is said if its budget cannot be met, or nothing."""
    settings, run = settings_of(row, args), RunFolder(args.work / row.name)
    with run.lock():
        try:
            if not run.plan.is_file():
                if row.method in OURS:
                    prune(settings, run, Silent())
                else:
                    prune_by_peer(settings, run, PEERS[row.method][1])
        except MissedError as error:
            return error.problem
    return ""


def prune_by_peer(settings: Settings, run: RunFolder, round_to: int | None) -> Plan:
    """Prune by torch-pruning's L1 with one ratio for all layers, the smallest whose network meets the budget.

    Raises:
        MissedError: none does.
    """
    original = open_original(settings)
    network = trace(original.model, original.input_shape)
    budget = Budget.parse(settings.prune.budget)
    low, high = 0.0, 0.95
    best: tuple[GroupPlan, ...] = ()
    fastest = 1.0
    with open_trial(original, settings, "quick") as trials:
        for _ in range(HALVINGS):
            ratio = (low + high) / 2
            cut, groups = peer_network(original.model, network, ratio, round_to)
            result = trials.measure(cut)
            used = result.candidate_us / budget.limit(result.original_us)
            fastest = min(fastest, result.ratio)
            if used <= 1:
                best, high = groups, ratio
            else:
                low = ratio
            if NEARLY_ALL <= used <= 1:
                break
    if not best:
        raise MissedError(f"not met: {fastest:.2f}x at best")
    names = [original.dataset.classes[index] for index in original.wanted]
    (images, _), *_ = labelled_batches(Subset(original.dataset.train, original.wanted), names, 8, 8, 0)
    batch = normalise(images, settings.model.mean, settings.model.std)
    return write_pruning(settings, original, None, [], best, batch, run)


def peer_network(
    model: nn.Module, network: Network, ratio: float, round_to: int | None
) -> tuple[nn.Module, tuple[GroupPlan, ...]]:
    """``model`` cut by torch-pruning, and what that kept of each group."""
    import torch_pruning

    cut = copy.deepcopy(model)
    pruner = torch_pruning.pruner.BasePruner(
        cut,
        torch.zeros(1, *network.input_shape),
        importance=torch_pruning.importance.MagnitudeImportance(p=1),
        pruning_ratio=ratio,
        ignored_layers=[cut.get_submodule(network.head)],
        round_to=round_to,
    )
    pruner.step()
    gone: dict[str, set[int]] = {group.name: set() for group in network.groups}
    for module, is_out, indices in pruner.pruning_history():
        for group in network.groups:
            for slot in group.slots:
                if slot.module == module and slot.axis == ("out" if is_out else "in"):
                    channel = dict(zip(slot.index, slot.channel, strict=True))
                    gone[group.name] |= {channel[index] for index in indices}
    groups = tuple(
        GroupPlan(g.name, g.width, tuple(c for c in range(g.width) if c not in gone[g.name]), g.producers)
        for g in network.groups
    )
    return cut.eval(), groups


@contextmanager
def open_trial(original: Original, settings: Settings, protocol: str) -> Iterator[Trial]:
    """Time candidates against the original of ``settings``."""
    use = use_of(load_target(TARGET), settings)
    limits = load_latency_protocol(protocol)
    with trial(original.model, original.input_shape, use, limits, settings.export.opset) as trials:
        yield trials


def finetune_row(row: Row, args: argparse.Namespace) -> None:
    """Fine-tune one pruned row and judge it; write its result beside its run folder."""
    settings, run = settings_of(row, args), RunFolder(args.work / row.name)
    with run.lock():
        plan = load_plan(run)
        history = finetune(settings, run, Silent())
    size = plan.input_shape[1:]
    test = Subset(open_dataset(settings.data, (size[0], size[1]), plan.input_shape[0]).test, plan.class_indices)

    def judged(weights: str) -> float:
        network = load(run, weights=weights)  # type: ignore[arg-type]
        logits = predict(network, test, plan.mean, plan.std, 256, torch.device("cpu"))
        return accuracy(logits, test.labels)

    result = {
        **asdict(row),
        "accuracy": judged("finetuned"),
        "original_accuracy": judged("original"),
        "validation_accuracy": history.validation_accuracy,
        "test_images": len(test.labels),
        "macs_share": plan.pruned_macs / plan.original_macs,
        "params_share": plan.pruned_params / plan.original_params,
        "widths": {group.name: len(group.kept) for group in plan.groups},
        "dropped": list(plan.dropped),
        "rounds": len(plan.latency.rounds) if plan.latency else None,
        "epochs": args.epochs,
        "finetune_seconds": history.seconds,
        "settings": settings.model_dump(mode="json", include={"prune", "finetune"}),
    }
    write_json(args.work / f"{row.name}.json", result)


def finetune_in_own_process(row: Row, args: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune a row in a process of its own, so that rows can be trained side by side on one thread each."""
    print(f"{row.name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, __file__, f"--row={json.dumps(asdict(row))}", f"--task={args.task}"]
    for name in ("data", "checkpoint", "model", "epochs", "work", "jobs"):
        command.append(f"--{name}={getattr(args, name)}")
    with (args.work / f"{row.name}.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    result: dict[str, Any] = json.loads((args.work / f"{row.name}.json").read_text())
    print(f"{row.name}: {result['accuracy']:.2%} on the test images", file=sys.stderr, flush=True)
    return result


def measure_row(row: Row, args: argparse.Namespace) -> dict[str, Any]:
    """Time the fine-tuned network of a row in turns with its original."""
    settings = settings_of(row, args)
    with open_trial(open_original(settings), settings, "standard") as trials:
        result = trials.measure(load(args.work / row.name))
    return {
        "ratio": result.ratio,
        "ratio_ci95": result.ratio_ci95,
        "us": result.candidate_us,
        "original_us": result.original_us,
        "warnings": list(result.warnings),
    }


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """One line a task and method, accuracy and measured speed by budget; seeds apart by slashes."""
    budgets = sorted({r["budget"] for r in results.values()}, key=lambda text: -Budget.parse(text).amount)
    lines = []
    for task in TASKS:
        for method, name in NAMES.items():
            mine = [r for r in results.values() if (r["task"], r["method"]) == (task, method)]
            if mine:
                cells = [cell([r for r in mine if r["budget"] == budget]) for budget in budgets]
                lines.append([task, name, *cells])
        originals = {r["original_accuracy"] for r in results.values() if r["task"] == task and "unmet" not in r}
        lines += [[task, "original", *[f"{accuracy:.2%}"] * len(budgets)] for accuracy in originals]
    return table(["task", "method", *[f"{budget}: accuracy, latency, MACs" for budget in budgets]], lines)


def cell(rows: list[dict[str, Any]]) -> str:
    """Accuracies, measured latencies and MACs of the rows of one method and budget, as shares of the original."""
    if not rows or "unmet" in rows[0]:
        return rows[0]["unmet"] if rows else ""
    accuracies = " / ".join(f"{r['accuracy']:.2%}" for r in rows)
    ratios = " / ".join(f"{r['measured']['ratio']:.3f}x" if "measured" in r else "?" for r in rows)
    return f"{accuracies}, {ratios}, {rows[0]['macs_share']:.0%}"


def main() -> None:
    """Prune, fine-tune and measure the rows that are missing, print the table."""
    args = arguments()
    if args.row:
        torch.set_num_threads(1 if args.jobs > 1 else torch.get_num_threads())
        finetune_row(Row(**json.loads(args.row)), args)
        return
    args.work.mkdir(parents=True, exist_ok=True)
    rows = [Row(args.task, b, m, seed) for seed in args.seeds for b in args.budgets for m in args.methods]
    results: dict[str, dict[str, Any]] = read_result(RESULT).get("rows", {})
    missing = [row for row in rows if results.get(row.name, {}).get("epochs") != args.epochs]

    def keep() -> None:
        checkpoints = read_result(RESULT).get("checkpoints", {}) | {args.task: file_hash(args.checkpoint)}
        write_result(RESULT, {"rows": results, "checkpoints": checkpoints, "environment": environment()})

    for row in missing:
        print(f"{row.name}: pruning", file=sys.stderr, flush=True)
        if unmet := prune_row(row, args):
            results[row.name] = asdict(row) | {"unmet": unmet, "epochs": args.epochs}
            keep()
    missing = [row for row in missing if "unmet" not in results.get(row.name, {})]
    with ThreadPoolExecutor(args.jobs) as pool:
        finished = pool.map(lambda row: finetune_in_own_process(row, args), missing)
        for row, result in zip(missing, finished, strict=True):
            results[row.name] = result
            keep()
    for row in rows:
        if not {"measured", "unmet"} & set(results[row.name]) and (args.work / row.name).is_dir():
            results[row.name]["measured"] = measure_row(row, args)
            keep()
    print(results_table(results))


if __name__ == "__main__":
    main()
