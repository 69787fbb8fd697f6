"""The key figures at the top of report.html."""

from dataclasses import dataclass

from catro_deploy.records import Speedup
from catro_deploy.records.figures import AgreementFigures, Verification
from catro_deploy.records.report import Report
from catro_deploy.report.budgets import asked_words, other_budgets
from catro_deploy.report.verdict import budget_words, prediction_word
from catro_deploy.report.wording import (
    change,
    change_interval,
    count,
    duration,
    minus,
    ms,
    nats,
    percent,
    points,
    ratios,
    share_interval,
    typeset,
)
from catro_deploy.units import counted

__all__ = ["Card", "cards"]


@dataclass(frozen=True)
class Card:
    """A large ``value`` with its unit and tone (good, bad or empty), and lines of detail below it."""

    name: str
    value: str
    lines: tuple[str, ...]
    tone: str = ""
    unit: str = ""
    estimate: bool = False


def cards(report: Report) -> list[Card]:
    """Speed, the budget if it counts latency, accuracy and size."""
    shown = [_speed(report.speedup, report) if report.speedup else _unmeasured(report)]
    if report.speedup and report.budget_used.unit != "flops":
        shown.append(_budget(report))
    accuracy = _accuracy(report.verification, report) if report.verification else _validation(report)
    return [*shown, accuracy, _size(report)]


def _speed(speedup: Speedup, report: Report) -> Card:
    low, high = speedup.ci95
    middle, low_text, high_text = ratios(speedup.median, low, high)
    tone, word = ("good", "faster") if low > 1 else ("bad", "SLOWER") if high < 1 else ("", "no significant difference")
    old, new = (ms(latency.p50) for latency in report.latencies or ())
    lines = word, f"95% CI {low_text} to {high_text}", f"p50 {old} → {new} ms"
    return Card(f"Speed on {report.target}" if report.devices else "Speed", f"{middle}×", lines, tone)


def _unmeasured(report: Report) -> Card:
    latency, unmeasured = report.latency_plan, f"not measured on {report.target}"
    if latency is None:
        return Card("Speed", "–", (unmeasured,))
    before, after = latency.original_us, latency.predicted_us
    estimate = latency.how == "estimate"
    times = typeset(f"{duration(before)} -> {duration(after)}")
    lines = "of the original's", times, unmeasured
    return Card("Latency" if estimate else "Latency, predicted", f"{after / before:.3f}×", lines, estimate=estimate)


def _budget(report: Report) -> Card:
    used, latency = report.budget_used, report.latency_plan
    value, _, unit = typeset(budget_words(used, used.used)).replace("x", "×").partition(" ")
    tone = {"met": "good", "missed": "bad", "unsure": ""}[used.outcome]
    word = {"met": "met", "missed": "MISSED", "unsure": "missed within the noise"}[used.outcome]
    before = (f"{prediction_word(latency)} {typeset(budget_words(used, used.predicted))}",) if latency else ()
    others = other_budgets(report.budget, report.budgets)
    missed = [f"MISSED: {asked_words(one)}" for one in others if one.outcome == "missed"]
    lines = f"{word}, measured", *before, *missed
    return Card(f"Budget {report.budget}", value, lines, "bad" if missed else tone, unit)


def _accuracy(verification: Verification, report: Report) -> Card:
    if report.agreement and not report.labelled:
        return _agreement(report.agreement, verification)
    gain = -(report.accuracy_drop_points or 0)
    before, after = (percent(network.accuracy) for network in (report.original, report.pruned))
    changed = report.accuracy_change_ci95
    interval = (minus(change_interval(changed)),) if changed else ()
    own = share_interval(report.pruned.accuracy_ci95)
    lines = *interval, f"{before} → {after}", f"({own})", counted(verification.test_images, "test image")
    tone = "good" if gain > 0 else "" if verification.passed else "bad"
    return Card("Accuracy", minus(points(gain)), lines, tone, "points")


def _agreement(found: AgreementFigures, verification: Verification) -> Card:
    images = f"{counted(verification.test_images, 'test image')} without labels"
    lines = "same prediction", share_interval(found.ci95), images, f"mean KL {nats(found.mean_kl_nats)}"
    return Card("Agreement with the original", percent(found.share), lines, "" if verification.passed else "bad")


def _validation(report: Report) -> Card:
    finetune = report.finetune
    if report.validation_accuracy is None or finetune is None:
        return Card("Accuracy", "–", ("not measured",))
    known, original = report.validation_accuracy_ci95, report.original_validation_accuracy
    before = f"{percent(finetune.baseline_validation_accuracy)} before it"
    lines = [
        *([share_interval(known)] if known else []),
        *(["after fine-tuning", before] if finetune.trained else ["without fine-tuning"]),
        *([] if original is None else [f"original {percent(original)}"]),
    ]
    return Card("Validation accuracy", percent(report.validation_accuracy), tuple(lines))


def _size(report: Report) -> Card:
    before, after = report.original, report.pruned
    params, macs = minus(change(before.params, after.params)), minus(change(before.macs, after.macs))
    return Card("Size, in parameters", params, (f"{count(before.params)} → {count(after.params)}", f"MACs {macs}"))
