"""docs/reconstruction.md, generated from the results of benchmarks/accuracy/reconstruction.py."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.accuracy.reconstruction_rows import ABLATIONS, CASES, COMPARED, TRAININGS
from benchmarks.common import table
from benchmarks.rows import gpu_of, marks

__all__ = ["page", "shown_accuracy"]

Results = Mapping[str, Mapping[str, Any]]

HEAD = """\
# Accuracy by training

<!-- Written by benchmarks/accuracy/reconstruction.py. Do not edit. -->

Accuracy on the test images of networks pruned to the same share of the original's measured latency, without training
and after little training. **ours** is the default: channels chosen by what the next layers can reconstruct from them,
measured worth, layers reconstructed, and the recipe `gentle`. **before** is the same tool without reconstruction,
fine-tuned with the recipe `fast`. torch-pruning prunes all layers by one ratio, to any widths or to multiples of 8 or
16, whichever keeps more multiply-accumulates; for ResNet-20 on CIFAR-10 at 0.35x, multiples were not tried. For
several seeds, cells hold the mean, and the smallest and largest value. The share of the latency is measured again after
pruning, interleaved with the original, on a machine that may also run other work. It may differ from the budget that
was met before, as on MobileNetV3, where torch-pruning's networks met 0.5x when they were chosen. `-`: not run yet; `*`:
trained on a GPU in mixed precision, all others on CPUs; `trained_on` in the JSON names the GPU. `°`: fine-tuned with
`gentle` before this recipe learned feature maps, that is, with `distill_features = 0`.
"""
WAYS = {
    "gentle": "gentle",
    "fast": "fast",
    "usual": "rate 0.05",
    "usual rate": "gentle, but rate 0.05",
    "no average": "gentle, no moving average",
    "no distillation": "gentle, no distillation",
    "half distillation": "gentle, half distillation",
    "no feature maps": "gentle, no feature maps",
}


def page(results: Results) -> str:
    """The page for ``results``, which are by row name."""
    parts = [HEAD]
    for name, case in CASES.items():
        of_case = [row for row in results.values() if row["case"] == name]
        for budget in case.budgets:
            of_budget = [row for row in of_case if row["budget"] == budget]
            if not of_budget:
                continue
            # A GPU rounds differently, and may get a few more or fewer images right.
            on_cpu = [row for row in of_budget if not gpu_of(row)] or of_budget
            original = statistics.mode(row["original_accuracy"] for row in on_cpu)
            parts.append(f"## {case.title}, {budget} (original {original:.2%})\n")
            parts.append(_table(of_budget, COMPARED, case.goals or {}, budget) + "\n")
            if any((row["pruning"], row["recipe"]) in ABLATIONS for row in of_budget):
                parts.append('One thing changed at a time ("before" also chooses channels and widths by scatter):\n')
                parts.append(_table(of_budget, (("ours", "gentle"), *ABLATIONS), {}, budget) + "\n")
    return "\n".join(parts)


def _table(
    rows: Sequence[Mapping[str, Any]],
    ways: Sequence[tuple[str, str]],
    goals: Mapping[tuple[str, str], float],
    budget: str,
) -> str:
    lines = []
    for pruning, recipe in ways:
        mine = [row for row in rows if row["pruning"] == pruning]
        if not mine:
            continue
        cells = []
        for training in TRAININGS:
            found = [r for r in mine if r["training"] == training and (r["recipe"] == recipe or training == "none")]
            cells.append(_spread([shown_accuracy(row) for row in found]) + marks(found))
        shares = f"{mine[0]['latency_ratio']:.3f}x", f"{mine[0]['macs_share']:.1%}"
        lines.append([pruning, WAYS[recipe], *shares, *cells])
    if goals:
        cells = [f">= {goals[budget, training]}" if (budget, training) in goals else "" for training in TRAININGS]
        lines.append(["goal", "", budget, "", *cells])
    return table(["pruned by", "fine-tuned by", "latency", "MACs", "no training", *list(TRAININGS)[1:]], lines)


def shown_accuracy(row: Mapping[str, Any]) -> float:
    """Accuracy in percent; untrained and without reconstruction, that with re-estimated batch norm statistics."""
    untrained = row["training"] == "none" and "kl" not in row
    return 100 * float(row["untrained_accuracy" if untrained else "accuracy"])


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"
