"""What `run --search` gains over one pruning, at the same measured latency and with no more training steps.

    python -m benchmarks.accuracy.search --cifar10 FOLDER --gtsrb FOLDER --photographs FOLDER --weights FOLDER
        [--cases resnet20-cifar10] [--ways one search] [--seeds 0 1 2] [--minutes 15]

"one" is a plain `run`, "one int8" is `run --precision int8`, "search" is `run --search`; "search, runtime" may also
change the runtime. The training that the search may spend on its variants (100 steps of four, an epoch of two) is
added to the epochs of the others, so that these take at least as many steps. All are complete runs of the command
line. Accuracy is that of the served file, in its runtime, on test images. Latency is measured interleaved with the
original, which runs in float32 in the runtime of the named target.

Prints a table; writes benchmarks/results/search.json. Completed rows are not run again.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.reconstruction_rows import CASES, data_sections
from benchmarks.accuracy.whole_runs import add_folders, whole_run
from benchmarks.common import environment, read_result, table, write_result
from catro_deploy.records import Finetune, Quantize, Variants
from catro_deploy.records.report import Report
from catro_deploy.runs.records import load, load_if_there
from catro_deploy.settings import Settings, load_settings
from catro_deploy.settings.search import SearchSettings

RESULT = "search.json"
RUNTIME = "search, runtime"
WAYS = ("one", "one int8", "search", RUNTIME)
HEADS = (
    "network", "budget", "way", "seed", "original, test", "pruned, test", "latency, measured", "served in", "variant",
    "epochs", "search",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A ``case`` of benchmarks.accuracy.reconstruction, and its budget.

    ``extra`` epochs are at least those of all variants of a search.
    """

    case: str
    budget: str
    epochs: int
    extra: int


TASKS = {
    "resnet20-cifar10": Task("resnet20-cifar10", "0.35x", 3, 3),  # 100 steps are a quarter of an epoch
    "resnet20-gtsrb": Task("resnet20-gtsrb", "0.2x", 3, 6),  # and here more than an epoch
    "mobilenet_v2-gtsrb": Task("mobilenet_v2-gtsrb", "0.3x", 3, 4),
    "mobilenet_v2-gtsrb-0.2x": Task("mobilenet_v2-gtsrb", "0.2x", 3, 4),
    "efficientnet_lite0-photographs": Task("efficientnet_lite0-photographs", "0.4x", 2, 6),
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=TASKS, default=[])
    add_folders(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--minutes", type=float, default=15.0, help="minutes of a search")
    parser.add_argument("--work", type=Path, default=Path("runs/search"), help="where the run folders go")
    return parser.parse_args()


def settings_of(name: str, way: str, seed: int, args: argparse.Namespace) -> Settings:
    """The settings of a row."""
    task = TASKS[name]
    case = CASES[task.case]
    sections = data_sections(case, args)
    searched = way.startswith("search")
    epochs = task.epochs if searched else task.epochs + task.extra
    knobs = {"knobs": [*SearchSettings().knobs, "runtime"]} if way == RUNTIME else {}
    return load_settings(
        None,
        {
            **sections,
            "prune": {"classes": list(case.classes), "budget": task.budget, "seed": seed},
            **({"quantize": {"precision": "int8"}} if way == "one int8" else {}),
            "search": {"enabled": searched, "minutes": args.minutes, **knobs},
            "bench": {"runtimes": ["auto"] if way == RUNTIME else []},
            "finetune": sections["finetune"] | {"epochs": epochs, "seed": seed},
        },
    )


def key_of(name: str, way: str, seed: int) -> str:
    """Key of a row, and name of its run folder."""
    return f"{name}-{way}-{seed}".replace(", ", "_").replace(" ", "_")


def run_row(name: str, way: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One complete run of the command line; an interrupted run resumes."""
    run = whole_run(settings_of(name, way, seed, args), args.work, key_of(name, way, seed))
    report, decided = load(Report, run), load_if_there(Quantize, run)
    found = load_if_there(Variants, run) if way.startswith("search") else None
    ratio, interval = served_share(report)
    return {
        "title": CASES[TASKS[name].case].title,
        "budget": TASKS[name].budget,
        "way": way,
        "seed": seed,
        "original_accuracy": report.original.accuracy,
        "accuracy": report.pruned.accuracy,
        "ratio": ratio,
        "ratio_ci95": interval,
        "precision": decided.shipped if decided else "fp32",
        "target": report.target,
        "variant": found.variants[0].name if found else "",
        "minutes": found.minutes if found else None,
        "variants": len(found.variants) if found else None,
        "screened": found.screened if found else None,
        "epochs": len(load(Finetune, run).epochs),
        "environment": environment(),
    }


def served_share(report: Report) -> tuple[float, list[float]]:
    """Share of the original's latency in ONNX Runtime, with its interval; if runtimes were compared, from quotients."""
    if report.runtimes is None:
        assert report.speedup is not None
        return report.speedup.ratio, list(report.speedup.ratio_ci95)
    rows = report.runtimes.rows
    (served,) = [row.speedup for row in rows if row.served]
    (own,) = [row.speedup for row in rows if row.network == "original" and row.runtime.startswith("onnxruntime ")]
    (least, most), (slowest, fastest) = own.ci95, served.ci95
    return own.median / served.median, [least / fastest, most / slowest]


def results_table(rows: Mapping[str, dict[str, Any]]) -> str:
    """A line for each run."""
    return table(HEADS, [cells(row) for row in rows.values()])


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    low, high = row["ratio_ci95"]
    return [
        row["title"], row["budget"], row["way"], str(row["seed"]), f"{row['original_accuracy']:.2%}",
        f"{row['accuracy']:.2%}", f"{row['ratio']:.3f}x ({low:.3f} to {high:.3f})", row["precision"], row["variant"],
        str(row["epochs"]), extent(row),
    ]  # fmt: skip


def extent(row: dict[str, Any]) -> str:
    """How many variants a search pruned and screened, and how long it took."""
    if row["minutes"] is None:
        return ""
    screened = f"{row['screened']} screened, " if row.get("screened") else ""
    return f"{screened}{row['variants']} pruned in {row['minutes']:.0f} min"


def main() -> None:
    """Run the rows that are missing, print the table."""
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = read_result(RESULT).get("rows", {})
    for name in args.cases:
        for seed in args.seeds:
            for way in args.ways:
                if (key := key_of(name, way, seed)) not in rows:
                    print(f"{key} ...", file=sys.stderr, flush=True)
                    rows[key] = run_row(name, way, seed, args)
                    write_result(RESULT, {"rows": dict(sorted(rows.items()))})
    print(results_table(rows))


if __name__ == "__main__":
    main()
