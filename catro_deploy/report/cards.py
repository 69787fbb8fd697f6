"""The few figures at the top of report.html."""

from html import escape

from catro_deploy.records import Speedup
from catro_deploy.records.figures import AgreementFigures, LatencyFigures, Verification
from catro_deploy.records.report import Report
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

__all__ = ["badge", "cards"]

Card = tuple[str, str, str, str]
"""Name, large figure (HTML), its tone (good, bad or empty), detail (HTML)."""


def cards(report: Report) -> str:
    """Speed, the budget if it counts latency, accuracy and size, as one HTML list."""
    shown = [_speed(report.speedup, report) if report.speedup else _unmeasured(report)]
    if report.speedup and report.budget_used.unit != "flops":
        shown.append(_budget(report))
    shown += [_accuracy(report.verification, report) if report.verification else _validation(report), _size(report)]
    items = "".join(
        f'<div><dt>{name}</dt><dd class="big {tone}">{big}</dd><dd class="detail">{detail}</dd></div>'
        for name, big, tone, detail in shown
    )
    return f'<dl class="figures of-{len(shown)}">{items}</dl>\n'


def badge(latency: LatencyFigures) -> str:
    """HTML that marks times as an estimate; nothing where they follow from measurements."""
    return ' <span class="badge">estimate</span>' if latency.how == "estimate" else ""


def _speed(speedup: Speedup, report: Report) -> Card:
    low, high = speedup.ci95
    middle, low_text, high_text = ratios(speedup.median, low, high)
    tone, word = ("good", "faster") if low > 1 else ("bad", "SLOWER") if high < 1 else ("", "no sure difference")
    old, new = (ms(latency.p50) for latency in report.latencies or ())
    detail = f"{word}<br>95% CI {low_text} to {high_text}<br>p50 {old} → {new} ms"
    return "Speed", f"{middle}×", tone, detail


def _unmeasured(report: Report) -> Card:
    latency, nobody = report.latency_plan, f"not measured on {escape(report.target)}"
    if latency is None:
        return "Speed", "–", "", nobody
    before, after = latency.original_us, latency.predicted_us
    name = "Latency" + (badge(latency) or ", predicted")
    times = typeset(f"{duration(before)} -> {duration(after)}")
    return name, f"{after / before:.3f}×", "", f"of the original's<br>{times}<br>{nobody}"


def _budget(report: Report) -> Card:
    used = report.budget_used
    big = typeset(budget_words(used, used.used)).replace("x", "×").replace(" µs", " <small>µs</small>")
    tone = {"met": "good", "missed": "bad", "unsure": ""}[used.outcome]
    word = {"met": "met", "missed": "MISSED", "unsure": "missed within the noise"}[used.outcome]
    latency = report.latency_plan
    before = f"<br>{prediction_word(latency)} {typeset(budget_words(used, used.predicted))}" if latency else ""
    return f"Budget {escape(report.budget)}", big, tone, f"{word}, measured{before}"


def _accuracy(verification: Verification, report: Report) -> Card:
    if report.agreement and not report.labelled:
        return _agreement(report.agreement, verification)
    gain = -(report.accuracy_drop_points or 0)
    before, after = (percent(network.accuracy) for network in (report.original, report.pruned))
    changed = report.accuracy_change_ci95
    interval = f"{_signs(change_interval(changed))}<br>" if changed else ""
    own = share_interval(report.pruned.accuracy_ci95)
    images = f"{count(verification.test_images)} test images"
    detail = f"{interval}{before} → {after}<br>({own})<br>{images}"
    tone = "good" if gain > 0 else "" if verification.passed else "bad"
    return "Accuracy", f"{minus(points(gain))} <small>points</small>", tone, detail


def _agreement(found: AgreementFigures, verification: Verification) -> Card:
    images = f"{count(verification.test_images)} test images without labels"
    interval = share_interval(found.ci95)
    detail = f"same answer<br>{interval}<br>{images}<br>mean KL {nats(found.mean_kl_nats)}"
    return "Agreement with the original", percent(found.share), "" if verification.passed else "bad", detail


def _validation(report: Report) -> Card:
    finetune = report.finetune
    if report.validation_accuracy is None or finetune is None:
        return "Accuracy", "–", "", "not measured"
    before = percent(finetune.baseline_validation_accuracy)
    trained = finetune.trained
    detail = f"after fine-tuning<br>{before} before it" if trained else "without fine-tuning"
    if (original := report.original_validation_accuracy) is not None:
        detail += f"<br>original {percent(original)}"
    known = report.validation_accuracy_ci95
    interval = f"{share_interval(known)}<br>" if known else ""
    return "Validation accuracy", percent(report.validation_accuracy), "", interval + detail


def _signs(text: str) -> str:
    """``text`` with true minus signs."""
    return text.replace(" -", " −")


def _size(report: Report) -> Card:
    before, after = report.original, report.pruned
    params, macs = minus(change(before.params, after.params)), minus(change(before.macs, after.macs))
    detail = f"{count(before.params)} → {count(after.params)}<br>MACs {macs}"
    return "Size, in parameters", params, "", detail
