"""The verdict on the logits of both networks: accuracy, agreement with the original, and problems."""

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import is_unlabelled
from catro_deploy.records import Accuracy, ClassAccuracy, PrunedAgreement, Verdict
from catro_deploy.statistics.agreement import (
    agreement_by_class,
    agreement_of,
    gains_and_losses,
    largest_difference,
    predictions_of,
)
from catro_deploy.statistics.intervals import paired_difference

__all__ = ["compare", "compare_with_original", "tuning_advice", "verdict_on"]

Floats = NDArray[np.float32]


def tuning_advice(epochs: int, *, in_integers: bool = False) -> str:
    """Advice where too much accuracy was lost after ``epochs`` of fine-tuning; ``in_integers``: int8 is served."""
    changed = "change how it is fine-tuned: a lower --learning-rate, another --batch-size, more --epochs"
    trained = changed if epochs else "fine-tune the network (--epochs)"
    floating = ", or serve it in floating point (--precision fp32)" if in_integers else ""
    return f"Allow more (--max-drop), or {trained}{floating}."


def compare(by_torch: Floats, by_runtime: Floats, labels: NDArray[np.int64], names: Sequence[str]) -> Accuracy:
    """Accuracies of two sets of logits, both (images, classes), and how far apart they are."""
    predictions = {"torch": predictions_of(by_torch), "runtime": predictions_of(by_runtime)}
    agreement = float((predictions["torch"] == predictions["runtime"]).mean())
    largest = largest_difference(by_torch, by_runtime)
    difference = largest if math.isfinite(largest) else None
    if is_unlabelled(labels):
        return Accuracy(None, None, agreement, difference, ())
    right = {side: given == labels for side, given in predictions.items()}
    per_class = tuple(
        ClassAccuracy(
            name,
            int((labels == k).sum()),
            float(right["torch"][labels == k].mean()),
            float(right["runtime"][labels == k].mean()),
        )
        for k, name in enumerate(names)
    )
    return Accuracy(float(right["torch"].mean()), float(right["runtime"].mean()), agreement, difference, per_class)


def compare_with_original(
    original: Floats, pruned: Floats, names: Sequence[str], labels: NDArray[np.int64] | None = None
) -> PrunedAgreement:
    """How the logits of the pruned network agree with the original's, both (images, classes)."""
    whole, interval = agreement_of(original, pruned), None
    if labels is not None and not is_unlabelled(labels):
        low, high = paired_difference(*gains_and_losses(original, pruned, labels), len(labels))
        interval = (100 * low, 100 * high)
    return PrunedAgreement(whole.share, whole.mean_kl_nats, agreement_by_class(original, pruned, names), interval)


def verdict_on(
    original: Accuracy,
    pruned: Accuracy,
    agreement: PrunedAgreement,
    tolerance: float,
    max_drop: float | None,
    in_integers: Collection[str] = (),
) -> Verdict:
    """Compare both networks with the allowed difference of logits and the allowed loss of accuracy.

    Without labels ``max_drop`` limits 100% minus the pruned network's agreement with the original. Logits of quantised
    networks (``in_integers``) differ by more than rounding, which shows in the accuracy; they only have to be finite.
    """
    problems = []
    for name, result in (("original", original), ("pruned", pruned)):
        difference = result.largest_logit_difference
        if difference is None:
            problems.append(f"The {name} network gives logits that are not finite.")
        elif difference > tolerance and name not in in_integers:
            problems.append(
                f"The {name} network's logits differ by {difference:.3g} between PyTorch and the runtime; "
                f"verify.tolerance allows {tolerance:g}."
            )
    drop, lost = None, round(100 * (1 - agreement.share), 9)
    if original.runtime is not None and pruned.runtime is not None:
        drop = lost = round(100 * (original.runtime - pruned.runtime), 9)
    if max_drop is not None and lost > max_drop:
        cause = "Pruning and int8" if "pruned" in in_integers else "Pruning"
        too_much = _too_much_accuracy(cause, lost, max_drop, agreement.accuracy_change_ci95)
        problems.append(too_much if drop is not None else _too_few_alike(lost, max_drop))
    return Verdict(original, pruned, drop, agreement, tuple(problems))


def _too_much_accuracy(cause: str, lost: float, max_drop: float, change: tuple[float, float] | None) -> str:
    interval = f" (95% CI {-change[1]:.2f} to {-change[0]:.2f})" if change else ""
    return f"{cause} cost {lost:.2f} points of accuracy{interval}; verify.max_drop allows {max_drop:g}."


def _too_few_alike(lost: float, max_drop: float) -> str:
    return (
        f"The pruned network gives {lost:.2f}% of the images another class than the original does; verify.max_drop, "
        f"which limits their share if images have no labels, allows {max_drop:g}%."
    )
