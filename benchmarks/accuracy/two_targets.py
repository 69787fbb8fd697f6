"""One network for two targets compared with a separate network for each: latency on both, and accuracy.

    python -m benchmarks.accuracy.two_targets --gtsrb FOLDER --cifar10 FOLDER --photographs FOLDER --weights FOLDER
        [--cases resnet20-gtsrb] [--targets x86-cpu x86-cpu-openvino] [--budget 0.5x] [--epochs 3]

All are complete runs of the command line, with the same budget and training. Latency is measured by `bench` on each
target, interleaved with the original there; accuracy is on test images.

Prints a table; writes benchmarks/results/two_targets.json. Completed rows are not run again.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy.reconstruction_rows import CASES, data_sections
from benchmarks.accuracy.whole_runs import add_folders, whole_run
from benchmarks.common import environment, read_result, table, write_result
from catro_deploy.records import Bench
from catro_deploy.records.report import Report
from catro_deploy.runs.records import load
from catro_deploy.settings import Settings, load_settings

RESULT = "two_targets.json"
HEADS = ("network", "budget", "pruned for", "original, test", "pruned, test", "latency, measured", "epochs")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[])
    add_folders(parser)
    parser.add_argument("--targets", nargs=2, default=["x86-cpu", "x86-cpu-openvino"])
    parser.add_argument("--budget", default="0.5x")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/two_targets"), help="where the run folders go")
    return parser.parse_args()


def settings_of(name: str, targets: Sequence[str], args: argparse.Namespace) -> Settings:
    """The settings of a row."""
    case, (first, *also) = CASES[name], targets
    sections = data_sections(case, args)
    return load_settings(
        None,
        {
            **sections,
            "prune": {"classes": list(case.classes), "budget": args.budget, "target": first, "also": also},
            "finetune": sections["finetune"] | {"epochs": args.epochs},
        },
    )


def run_row(name: str, targets: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """One complete run of the command line; an interrupted run resumes."""
    run = whole_run(settings_of(name, targets, args), args.work, key_of(name, targets, args))
    report, bench = load(Report, run), load(Bench, run)
    on = {target: found for target in targets if (found := bench.on(target, targets[0]))}
    return {
        "title": CASES[name].title,
        "budget": args.budget,
        "targets": list(targets),
        "original_accuracy": report.original.accuracy,
        "accuracy": report.pruned.accuracy,
        "ratios": {target: [one.speedup.ratio, *one.speedup.ratio_ci95] for target, one in on.items()},
        "epochs": args.epochs,
        "environment": environment(),
    }


def key_of(name: str, targets: Sequence[str], args: argparse.Namespace) -> str:
    """Key of a row, and name of its run folder."""
    return "-".join([name, args.budget, *targets])


def cells(row: Mapping[str, Any]) -> list[str]:
    """One line of the table."""
    latencies = [f"{target}: {at:.3f}x ({low:.3f} to {high:.3f})" for target, (at, low, high) in row["ratios"].items()]
    return [
        row["title"],
        row["budget"],
        " and ".join(row["targets"]),
        f"{row['original_accuracy']:.2%}",
        f"{row['accuracy']:.2%}",
        "<br>".join(latencies),
        str(row["epochs"]),
    ]


def results_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each run."""
    return table(HEADS, [cells(row) for row in rows.values()])


def main() -> None:
    """Run the rows that are missing, print the table."""
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = read_result(RESULT).get("rows", {})
    for name in args.cases:
        for targets in (args.targets, *([one] for one in args.targets)):
            if (key := key_of(name, targets, args)) not in rows:
                print(f"{key} ...", file=sys.stderr, flush=True)
                rows[key] = run_row(name, targets, args)
                write_result(RESULT, {"rows": dict(sorted(rows.items()))})
    print(results_table(rows))


if __name__ == "__main__":
    main()
