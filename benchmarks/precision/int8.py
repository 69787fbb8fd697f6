"""int8 on an x86 processor: accuracy and latency of original and pruned networks, in float32 and in int8.

    python -m benchmarks.precision.int8 --gtsrb FOLDER --cifar10 FOLDER --weights FOLDER [--only resnet20] [--epochs 15]

Each case has the trained network as it is, and networks pruned FOR int8 to shares of the original's latency in float32
and fine-tuned. All run through the product's own stages: calibration on training images, layers kept in float32 by
validation images, accuracy of the exported file in ONNX Runtime on test images, latency interleaved with the original
in float32 (one thread). ResNet-50 at 224x224 has random weights: only its latency is measured. --weights holds
gtsrb_resnet20.pth, cifar10_resnet20.pth, cifar10_resnet56.pth and, for the case mobilenet_v2, the result of five epochs
of `catro-deploy train` at 96x96: mobilenet_v2_96.safetensors.

Prints a table; writes benchmarks/results/precision.json, by processor. Completed rows are not run again.
"""

import argparse
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import environment, processor, read_result, table, write_result
from benchmarks.precision.cases import CASES, WHOLE, Case, case_settings, make_networks, random_settings
from catro_deploy import load
from catro_deploy.agent.jobs import ModelFile
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.errors import MissedError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.latency.profile import find_profile
from catro_deploy.precision.fused import Fused, fused
from catro_deploy.precision.timing import convert_
from catro_deploy.progress import Silent
from catro_deploy.records import Plan, Quantize, Verify
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load as load_record
from catro_deploy.settings import Settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import prune
from catro_deploy.stages.verify import verify
from catro_deploy.targets import load_target
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use, bench_job, speedup_of, use_of

RESULT = "precision.json"
RESNET50 = "ResNet-50, 224x224, random weights"
RESNET50_BUDGETS = ("0.2x",)
HEADS = (
    "network", "budget", "MACs", "float32", "int8", "drop", "float32, speedup", "int8, speedup (95% CI)",
    "int8 over float32", "integer nodes", "kept in float32", "profile: RMSPE",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gtsrb", type=Path)
    parser.add_argument("--cifar10", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="cases whose names match this pattern")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--work", type=Path, default=Path("runs/precision"), help="where the run folders go")
    return parser.parse_args()


def settings_of(case: Case, budget: str, args: argparse.Namespace) -> Settings:
    """The settings of a row: no reconstruction, fine-tuned at a high learning rate."""
    rates = {"learning_rate": 0.1, "distill": 0.5, "ema": 0.998, "compile": True}
    return case_settings(
        case, args, prune={"target": "x86-cpu", "budget": budget, "reconstruct": False}, finetune=rates
    )


def run_row(case: Case, budget: str, run: RunFolder, args: argparse.Namespace) -> dict[str, Any]:
    """Prune, fine-tune, quantise and verify one network; what is finished in ``run`` is not repeated."""
    settings = settings_of(case, budget, args)
    make_networks(settings, run, train=budget != WHOLE)
    with run.lock(), suppress(MissedError):
        if not run.verify.is_file():
            verify(settings, run, Silent())
    plan, decided, verified = load_record(Plan, run), load_record(Quantize, run), load_record(Verify, run)
    original = open_original(settings)
    use = use_of(load_target("x86-cpu"), settings)
    profile = find_profile(original.model, original.input_shape, use) if budget != WHOLE else None
    made = decided.made["int8"]
    return {
        "title": case.title,
        "budget": budget,
        "epochs": 0 if budget == WHOLE else args.epochs,
        "macs_share": plan.pruned_macs / plan.original_macs,
        "original_accuracy": verified.original.runtime,
        "fp32_accuracy": verified.pruned.torch,
        "served": decided.shipped,
        "served_accuracy": verified.pruned.runtime,
        "candidates": {name: asdict(one) for name, one in decided.candidates.items()},
        "kept": made.kept,
        "operators": made.operators,
        "profile": None if profile is None else vars(profile.errors),
        "instruction_sets": decided.environment["instruction_sets"],
    }


def run_resnet50(budget: str, run: RunFolder) -> dict[str, Any]:
    """Latency of ResNet-50 in float32 and int8, interleaved; its weights, and so its predictions, are random."""
    with run.lock():
        settings = random_settings("torchvision:resnet50", 224, "x86-cpu", budget, run)
        original = open_original(settings)
        if budget != WHOLE and not run.plan.is_file():
            prune(settings, run, Silent())
            shutil.copyfile(run.pruned_weights, run.weights)
    network = original.model if budget == WHOLE else load(run.path)
    use = use_of(load_target("x86-cpu"), settings)
    with tempfile.TemporaryDirectory() as name:
        files = {precision: Path(name) / f"{precision}.onnx" for precision in ("original", "fp32", "int8")}
        for precision, file in files.items():
            model = original.model if precision == "original" else network
            export_onnx(model, original.input_shape, file, opset=18, metadata={})
            convert_(file, "int8" if precision == "int8" else "fp32", "fp32", use.runtime)
        candidates = {precision: _time(Path(name), precision, use) for precision in ("fp32", "int8")}
        operators = dict(fused(files["int8"]).operators)
    plan = load_record(Plan, run) if budget != WHOLE else None
    profile = find_profile(original.model, original.input_shape, use) if budget != WHOLE else None
    return {
        "title": RESNET50,
        "budget": budget,
        "macs_share": plan.pruned_macs / plan.original_macs if plan else 1.0,
        "candidates": candidates,
        "kept": [],
        "operators": operators,
        "profile": None if profile is None else vars(profile.errors),
    }


def _time(folder: Path, precision: str, use: Use) -> dict[str, Any]:
    """Time the network in ``precision``, interleaved with the original in float32: both are in ``folder``."""
    files = ("original.onnx", f"{precision}.onnx")
    models = {"original": ModelFile(files[0], {}), "pruned": ModelFile(files[1], {})}
    result = run_job("", bench_job(use, load_latency_protocol("standard"), models), folder, files)
    return {
        "speedup": asdict(speedup_of(result)),
        "us": result.pruned.p50_us,
        "warnings": list(result.warnings),
    }


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    float32, integers = row["candidates"]["fp32"], row["candidates"].get("int8")
    accuracies = ["", "", ""]
    if "fp32_accuracy" in row:
        in_integers = row["served_accuracy"] if row["served"] == "int8" else None
        drop = None if in_integers is None else 100 * (row["original_accuracy"] - in_integers)
        accuracies = [
            f"{row['fp32_accuracy']:.2%}",
            "not served" if in_integers is None else f"{in_integers:.2%}",
            "" if drop is None else f"{drop:.2f}",
        ]
    budget = "as it is" if row["budget"] == WHOLE else row["budget"]
    speedups = ["", ""]
    if integers:
        median, (low, high) = integers["speedup"]["median"], integers["speedup"]["ci95"]
        speedups = [f"{median:.2f}x ({low:.2f} to {high:.2f})", f"{median / float32['speedup']['median']:.2f}x"]
    made = Fused(row["operators"] or {})
    return [
        row["title"], budget, f"{row['macs_share']:.0%}", *accuracies,
        f"{float32['speedup']['median']:.2f}x", *speedups,
        f"{made.integer}", ", ".join(row["kept"] or ()) or "none",
        f"{row['profile']['rmspe']:.2%}" if row["profile"] else "",
    ]  # fmt: skip


def main() -> None:
    """Run the rows that are missing, print the table of this machine."""
    args = arguments()
    machines: dict[str, dict[str, Any]] = read_result(RESULT).get("machines", {})
    rows: dict[str, dict[str, Any]] = machines.get(processor(), {}).get("rows", {})

    def keep(name: str, row: dict[str, Any]) -> None:
        rows[name] = row
        machines[processor()] = {"environment": environment(), "rows": dict(sorted(rows.items()))}
        write_result(RESULT, {"machines": machines})

    for budget in (WHOLE, *RESNET50_BUDGETS) if args.only.search("resnet50") else ():
        if (key := f"resnet50-{budget}") not in rows:
            keep(key, run_resnet50(budget, RunFolder(args.work / key)))
    for name, case in CASES.items():
        for budget in (WHOLE, *case.budgets) if args.only.search(name) else ():
            key = f"{name}-{budget}"
            if key not in rows:
                print(f"{key} ...", file=sys.stderr, flush=True)
                with suppress(MissedError):  # no network meets the budget
                    keep(key, run_row(case, budget, RunFolder(args.work / key), args))
    print(table(HEADS, [cells(row) for row in rows.values()]))


if __name__ == "__main__":
    main()
