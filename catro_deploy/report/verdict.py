"""The verdict of a report: one sentence that claims no more than the figures support."""

from catro_deploy.records import LatencyPlan, Speedup
from catro_deploy.records.budgets import BudgetUsed
from catro_deploy.records.figures import LatencyFigures, Verification
from catro_deploy.records.report import Report
from catro_deploy.report.budgets import missed_list, other_budgets
from catro_deploy.report.wording import (
    change_interval,
    distinguished,
    duration,
    percent,
    points,
    ratios,
    share_interval,
)
from catro_deploy.statistics.guessing import is_no_better_than_guessing
from catro_deploy.units import counted

__all__ = ["OUTCOMES", "budget_words", "invalid_original", "prediction_word", "validity", "verdict"]

OUTCOMES = {
    "met": "met",
    "missed": "OVER BUDGET",
    "unsure": "missed, but within the noise",
    "not measured": "not measured",
}
"""The outcome of a budget, in words."""


def verdict(report: Report) -> str:
    """One sentence that claims no more than the figures of ``report`` support."""
    parts = [f"{_speeds(report)}, {_accuracy(report)}", *_budget(report), *_other_budgets(report)]
    if report.verification and not report.verification.passed:
        parts.append("verification FAILED")
    if reason := invalid_original(report):
        parts.append(f"figures NOT valid: {reason}")
    return "; ".join(parts)


def validity(report: Report) -> str:
    """Whether the figures are valid, in one sentence; the warnings are listed below it."""
    if reason := invalid_original(report):
        return f"The figures are NOT valid: {reason}."
    verification = report.verification
    if verification is None:
        return f"The figures are incomplete: nothing was measured on {report.target}."
    if not _exported_rightly(verification):
        return "The figures are NOT valid: the exported networks do not compute what PyTorch computes."
    outcomes = [report.budget_used.outcome, *(one.outcome for one in report.budgets)]
    missed = ", and miss the request" if "missed" in outcomes or not verification.passed else ""
    return f"The figures are valid{missed}. Keep in mind:"


def invalid_original(report: Report) -> str:
    """Why comparisons with this original are meaningless, as a clause; empty if they are meaningful."""
    look = report.images.first_look
    if look and look.invalid:
        return look.invalid
    accuracy, classes = report.original.accuracy, [one.images for one in report.per_class]
    if accuracy is None or len(classes) < 2:
        return ""
    images = sum(classes)
    if is_no_better_than_guessing(round(accuracy * images), images, max(classes) / images):
        return f"the original has {percent(accuracy)} of the test images right, which is no better than guessing"
    return ""


def _exported_rightly(verification: Verification) -> bool:
    """Whether the runtime's logits match PyTorch's within the tolerance; those of int8 only have to be finite."""
    precisions = verification.precision
    for network, precision in (
        (verification.original, precisions.original),
        (verification.pruned, precisions.pruned),
    ):
        difference = network.largest_logit_difference
        if difference is None or (difference > verification.tolerance and precision != "int8"):
            return False
    return True


def prediction_word(latency: LatencyFigures | LatencyPlan) -> str:
    """The word for a plan's times: ``estimate``, or ``predicted`` if they are based on measurements."""
    return "estimate" if latency.how == "estimate" else "predicted"


def budget_words(used: BudgetUsed, amount: float | None) -> str:
    """An ``amount`` of a budget in its unit, with enough digits to differ from the request, such as ``0.497x``."""
    if amount is None:
        return "not measured"
    return percent(amount) if used.unit == "flops" else distinguished(amount, used.asked, used.unit)


def _speeds(report: Report) -> str:
    """The speedup, on each of several targets; or that none was measured."""
    if report.devices:
        return ", ".join(f"on {one.name} {_speed(one.speedup)}" for one in report.devices)
    return _speed(report.speedup) if report.speedup else _not_measured(report)


def _speed(speedup: Speedup) -> str:
    low, high = speedup.ci95
    median_text, low_text, high_text = ratios(speedup.median, low, high)
    interval = f"(95% CI {low_text} to {high_text})"
    if low > 1:
        return f"{median_text}x faster {interval}"
    if high < 1:
        return f"SLOWER: {median_text}x the original's speed {interval}"
    return f"no difference beyond the noise: {median_text}x the original's speed {interval}"


def _not_measured(report: Report) -> str:
    latency = report.latency_plan
    if latency is None:
        return f"latency not measured on {report.target}"
    before, after = latency.original_us, latency.predicted_us
    return (
        f"not measured on {report.target}: {prediction_word(latency)} {after / before:.3f}x of the original's "
        f"latency ({duration(before)} -> {duration(after)}) for a budget of {report.budget}"
    )


def _accuracy(report: Report) -> str:
    if report.verification is None:
        found = report.validation_accuracy
        if found is None:
            return "accuracy not measured"
        known = report.validation_accuracy_ci95
        trained = "after" if report.finetune and report.finetune.trained else "without"
        interval = f" ({share_interval(known)})" if known else ""
        original = report.original_validation_accuracy
        before = "" if original is None else f"{percent(original)} -> "
        return f"validation accuracy {before}{percent(found)}{interval} {trained} fine-tuning"
    drop = report.accuracy_drop_points
    if report.agreement and drop is None:
        images = counted(report.verification.test_images, "test image")
        same = percent(report.agreement.share)
        return f"same prediction as the original on {same} of {images} without labels (accuracy not known)"
    old, new = report.original.accuracy, report.pruned.accuracy
    changed = report.accuracy_change_ci95
    if drop == 0:
        interval = f" ({change_interval(changed)})" if changed else ""
        return f"accuracy unchanged at {percent(new)}{interval}"
    interval = f", {change_interval(changed)}" if changed else ""
    return f"accuracy {percent(old)} -> {percent(new)} ({points(-(drop or 0))} points{interval})"


def _budget(report: Report) -> list[str]:
    """The outcome of the budget; empty for a budget of MACs that is met."""
    used = report.budget_used
    if used.outcome == "not measured":
        return []
    words = budget_words(used, used.used)
    if used.unit == "flops":
        allowed = f"{words} of the MACs where {percent(used.asked)} were allowed"
        return [f"OVER BUDGET: {allowed}"] if used.outcome == "missed" else []
    measured = f"{words} of the original's latency" if used.unit == "x" else words
    return [
        {
            "met": f"budget {report.budget} met: {measured}, measured",
            "unsure": f"budget {report.budget} missed, but within the noise: {measured}, measured",
            "missed": f"OVER BUDGET: {measured}, measured, where {report.budget} was requested",
        }[used.outcome]
    ]


def _other_budgets(report: Report) -> list[str]:
    """The outcome of all budgets but the main one; empty if there are none or their outcome is not known."""
    others = other_budgets(report.budget, report.budgets)
    if words := missed_list(others):
        return [f"OVER BUDGET: {words}"]
    met = all(one.outcome == "met" for one in report.budgets)
    which = "both" if len(report.budgets) == 2 else f"all {len(report.budgets)}"
    return [f"{which} budgets met"] if others and met else []
