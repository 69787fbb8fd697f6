"""The tables of equal_latency.py, one for each machine: latencies of two machines are not compared."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.common import table
from catro_deploy.records import Budget

__all__ = ["MODEL", "SEARCHED", "machine_tables"]

MODEL = "cifar_resnet20"
"""The default network, which the tables do not name."""

SEARCHED = "drop"
"""Prefix of a searched budget, followed by the points that may be lost on validation images: ``drop0.5``."""

Result = Mapping[str, Any]


def machine_tables(processor: str, rows: Mapping[str, Result], names: Mapping[str, str]) -> str:
    """All tables of one machine: one for the given budgets, and one for each allowed loss.

    ``rows`` maps row names to results, ``names`` methods to their names, in order.
    """
    given = [row for row in rows.values() if not row["budget"].startswith(SEARCHED)]
    searched = [row for row in rows.values() if row["budget"].startswith(SEARCHED)]
    parts = [f"{processor}, ONNX Runtime, one thread"]
    if given:
        budgets = sorted({row["budget"] for row in given}, key=lambda text: -Budget.parse(text).amount)
        parts.append(_of_budgets(given, budgets, names, [f"{budget}: accuracy, latency, MACs" for budget in budgets]))
    for budget in sorted({row["budget"] for row in searched}):
        mine = [row for row in searched if row["budget"] == budget]
        allowed = float(budget.removeprefix(SEARCHED))
        title = f"at most {allowed:g} points lost on validation images: accuracy, latency, MACs"
        parts.append(_of_budgets(mine, [budget], names, [title]))
    return "\n\n".join(parts)


def _of_budgets(
    results: Sequence[Result], budgets: Sequence[str], names: Mapping[str, str], titles: Sequence[str]
) -> str:
    """One line per task, number of epochs and method, and one for the original."""
    lines: list[list[object]] = []
    for task, epochs in dict.fromkeys((_task(row), row["epochs"]) for row in results):
        alike = [row for row in results if (_task(row), row["epochs"]) == (task, epochs)]
        for method, name in names.items():
            mine = [row for row in alike if row["method"] == method]
            if mine:
                cells = [_cell([row for row in mine if row["budget"] == budget]) for budget in budgets]
                lines.append([task, epochs, name, *cells])
        for original in sorted({row["original_accuracy"] for row in alike if "unmet" not in row}):
            lines.append([task, "", "original", *[f"{original:.2%}"] * len(budgets)])
    return table(["task", "epochs", "method", *titles], lines)


def _task(row: Result) -> str:
    """The task and, unless it is the default one, the network and the size of its images."""
    if row.get("model", MODEL) == MODEL:
        return str(row["task"])
    size = f" at {row['size']}x{row['size']}" if row["size"] else ""
    return f"{row['task']}, {row['model']}{size}"


def _cell(rows: Iterable[Result]) -> str:
    """Accuracy, measured latency and MACs (shares of the original's); for several seeds, each value and the mean."""
    rows = sorted(rows, key=lambda row: int(row["seed"]))
    met = [row for row in rows if "unmet" not in row]
    unmet = [
        f"seed {row['seed']}: {row['unmet']}" if len(rows) > 1 else str(row["unmet"]) for row in rows if row not in met
    ]
    if not met:
        return "; ".join(unmet)
    accuracies = " / ".join(f"{row['accuracy']:.2%}" for row in met)
    ratios = " / ".join(f"{row['measured']['ratio']:.3f}x" if "measured" in row else "?" for row in met)
    macs = " / ".join(dict.fromkeys(f"{row['macs_share']:.0%}" for row in met))
    if len(met) > 1:
        accuracies += f" (mean {mean(row['accuracy'] for row in met):.2%})"
        measured = [row["measured"]["ratio"] for row in met if "measured" in row]
        ratios += f" (mean {mean(measured):.3f}x)" if len(measured) == len(met) else ""
    return "; ".join([f"{accuracies}, {ratios}, {macs}", *unmet])
