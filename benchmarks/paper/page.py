"""docs/paper.md, generated from the results of benchmarks/paper/tables.py."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common import table
from benchmarks.paper.rows import PAPER, Row, rows_of
from benchmarks.rows import marks

__all__ = ["page"]

Results = Mapping[str, Mapping[str, Any]]

HEAD = """\
# The paper's tables

<!-- Written by benchmarks/paper/tables.py. Do not edit. -->

CATRO (arXiv 2110.10921) and other methods at equal multiply-accumulates, fine-tuned alike. "ours" is the default of
this project, at the same multiply-accumulates: layers are reconstructed, widths are chosen by the loss that they cause,
and fine-tuning uses the gentle recipe. Accuracy is measured on the test images with the weights after the last epoch.
"Paper" is the paper's accuracy after 200 epochs; for ours, it is that of CATRO. Baselines differ from the paper's, so
each row includes the drop from **our** original. For several seeds, cells hold the mean, and the smallest and largest
value. "Error" is the standard error, in points, of an accuracy on this number of test images. "Untrained" is the
network right after the cut, with re-estimated batch norm statistics; for ours, the network after reconstruction. `*`:
trained on a GPU in mixed precision, all others on CPUs; `trained_on` in the JSON names the GPU. `°`: fine-tuned with
the gentle recipe before it learned feature maps (`distill_features = 0`).
"""
TITLES = {
    1: "ResNet-20 on two subtasks of GTSRB",
    2: "ResNets on CIFAR-10",
    3: "Ablation: four classes of CIFAR-10, ResNet-20 at a tenth of its MACs",
    4: "The paper's fine-tuning recipe against the fast one",
}
NAMES = {
    "catro": "CATRO",
    "one-pass": "CATRO, layers chosen at once",
    "l1": "L1, same widths",
    "l1-uniform": "L1, uniform",
    "fpgm": "FPGM of torch-pruning, same widths",
    "group-l2": "group L2 of torch-pruning, same widths",
    "ours": "ours",
    "ours-cutmix": "ours, with CutMix",
}
SEEDS = range(10)
# Tables for which the paper reports figures.
WITH_PAPER = (1, 2)
PICTURES = {
    1: [
        "![Strips for each layer: channels that are kept for speed limits and for direction signs](paper_kept.svg)\n",
        "Channels of the same network kept for the two subtasks, at a tenth of its MACs (the paper's figure 6).\n",
        "![Silhouettes for each layer: its width over the iterations](paper_path.svg)\n",
        "The path of Algorithm 2 for speed limits (the paper's figure 5). Drawn by benchmarks/paper/figures.py.\n",
    ]
}


def page(results: Results) -> str:
    """The page for ``results``, which are by row name."""
    parts = [HEAD]
    for number, title in TITLES.items():
        rows = {row.name: row for row in rows_of(number, SEEDS)}
        lines = _lines([row for name, row in rows.items() if name in results], results)
        first = {row.name: row for row in rows_of(number, [0])}
        missing = [name.removesuffix("-seed0") for name in first if name not in results]
        parts.append(f"## {number}. {title}\n")
        if lines:
            parts.append(table(_heads(number), lines) + "\n")
        parts += PICTURES.get(number, [])
        if missing:
            parts.append(f"Not run yet: {', '.join(missing)}.\n")
    return "\n".join(parts)


def _heads(number: int) -> list[str]:
    paper = ["paper"] if number in WITH_PAPER else []
    return [
        "what",
        "recipe" if number == 4 else "method",
        "MACs cut",
        *paper,
        "untrained",
        "accuracy",
        "error",
        "seeds",
        "original",
        "drop, points",
        "epochs",
    ]


def _lines(rows: Sequence[Row], results: Results) -> list[list[object]]:
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.case, row.recipe if row.table == 4 else NAMES[row.method]].append(row)
    return [
        [case, name, *_cells(members[0], [results[row.name] for row in members])]
        for (case, name), members in grouped.items()
    ]


def _cells(row: Row, found: Sequence[Mapping[str, Any]]) -> list[object]:
    """The results of the seeds of ``row``, in the order of the heads."""
    reached = [float(one["accuracy"]) for one in found]
    untrained = [float(one["untrained_accuracy"]) for one in found if "untrained_accuracy" in one]
    original = float(found[0]["original_accuracy"])
    return [
        f"{1 - max(one['macs_share'] for one in found):.1%}",
        *([_paper(row)] if row.table in WITH_PAPER else []),
        _spread(untrained),
        _spread(reached) + marks(found),
        f"{100 * _standard_error(statistics.mean(reached), found[0]['test_images']):.2f}",
        len(found),
        f"{original:.2%}",
        f"{100 * (original - statistics.mean(reached)):.2f}",
        "/".join(sorted({str(one["epochs"]) for one in found})),
    ]


def _paper(row: Row) -> str:
    """The paper's accuracy for this row, if it gives one; for ours, that of CATRO."""
    method = "catro" if row.method.startswith("ours") else row.method
    key: tuple[int | str, ...] = (row.table, row.model, method)
    if row.table == 1:
        subtask, _, cut = row.case.rpartition("-")
        key = (1, subtask, int(cut) if cut.isdigit() else cut, method)
    return f"{PAPER[key]:.2%}" if key in PAPER else ""


def _standard_error(share: float, count: int) -> float:
    """Standard error of a share of ``count`` images, drawn at random from many."""
    return math.sqrt(share * (1 - share) / count)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = f"{statistics.mean(values):.2%}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2%} to {max(values):.2%})"
