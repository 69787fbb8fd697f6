"""Agreement with the original: reported instead of accuracy if there are no labels, but never called accuracy."""

from html import escape
from math import sqrt

from catro_deploy.records import Decision, Metric, Quantize, Search, Verify
from catro_deploy.records.figures import AgreementFigures
from catro_deploy.report import svg
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import count, isolated, nats, percent
from catro_deploy.units import counted

__all__ = [
    "METRICS",
    "agreement_chart",
    "agreement_table",
    "basis_warnings",
    "divergence_words",
    "metric_words",
    "validation_heading",
]

METRICS: dict[Metric, str] = {"accuracy": "accuracy", "agreement": "agreement with the original"}
"""The metrics, in words."""

# An original that is significantly better, by this margin, on validation than on test images was trained on the former.
FAR_POINTS, STANDARD_ERRORS = 1.0, 3.0


def metric_words(metric: Metric, by_divergence: bool) -> str:
    """The metric of a search or a quantisation: ``agreement with the original and divergence from its outputs``."""
    return f"{METRICS[metric]} and divergence from its outputs" if by_divergence else METRICS[metric]


def divergence_words(decision: Decision) -> str:
    """A sentence about the allowed divergence, with a leading space; empty if divergence was not used."""
    most = decision.largest_kl_nats
    if most is None:
        return ""
    return (
        f" {counted(decision.validation_images, 'image is', 'images are')} too few to count changed predictions "
        "reliably, so agreement rules out only losses that chance cannot explain. In addition, the divergence from the "
        f"original's outputs (mean KL, at the best common scale of the logits) may be at most {nats(most)}: the "
        "divergence that changes as many predictions as allowed."
    )


def validation_heading(decision: Decision) -> str:
    """The table heading of a decision's scores."""
    return "Validation accuracy" if decision.metric == "accuracy" else "Agreement, validation images"


def agreement_table(agreement: AgreementFigures) -> Table:
    """Agreement with the original on the test images, by the class that the original predicts."""
    rows = tuple((one.name, count(one.images), percent(one.share)) for one in agreement.per_class)
    return Table(("Class, by the original's prediction", "Test images", "Same prediction"), rows, frozenset({1, 2}))


def agreement_chart(agreement: AgreementFigures) -> str:
    """A dot for each class, with a line to full agreement, on a zoomed axis; of many, those that agree least."""
    classes = agreement.per_class
    shown = svg.foremost(classes, key=lambda one: one.share)
    axis = svg.zoomed(min(*(one.share * 100 for one in shown), 99), 100, 4, floor=0, ceiling=100)
    parts = svg.grid(axis, "%")
    for number, one in enumerate(shown):
        place = axis.place(one.share * 100)
        hint = f"{isolated(one.name)}: {percent(one.share)} of {counted(one.images, 'image')}"
        drawn = [
            svg.name(one.name, "start"),
            svg.line(place, 0, 100, 0, "link"),
            svg.circle(place, 0, 3.5, "dot pruned", hint=hint),
            svg.value(percent(one.share), faint=one.share == 1),
        ]
        parts.append(svg.row(number, drawn))
    worst = min(classes, key=lambda one: float(one.share))
    least = f"Least agreement: {isolated(worst.name)}, {percent(worst.share)} of {counted(worst.images, 'image')}."
    some = "" if len(shown) == len(classes) else f"The {len(shown)} of {count(len(classes))} classes that agree least. "
    caption = (
        f"{some}The share of test images for which the pruned network predicts the same class as the original, by "
        f"the original's prediction. The images have no labels: this is not an accuracy. {escape(least)} The axis runs "
        f"from {axis.format(axis.low)}% to 100%{'' if axis.low == 0 else ', not from 0'}."
    )
    return svg.figure("Agreement by class", least, parts, f"--rows:{len(shown)}", "rows", caption)


def basis_warnings(verify: Verify | None, search: Search | None, quantize: Quantize | None) -> list[str]:
    """Warnings about the images that the budget or the precision was chosen on."""
    found = []
    chosen = quantize if quantize and quantize.asked != quantize.own else None
    decisions: tuple[tuple[str, Decision | None], ...] = (("budget", search), ("precision", chosen))
    for what, decision in decisions:
        known = decision.original_validation_accuracy if decision else None
        if decision is None or known is None:
            continue
        tested = _tested(verify)
        if decision.metric == "agreement":
            metrics = metric_words(decision.metric, decision.largest_kl_nats is not None)
            found.append(f"The {what} was chosen by {metrics}, not by accuracy: {decision.metric_reason}{tested}.")
        elif verify and is_far_above(known, decision.validation_images, verify):
            found.append(
                f"The {what} was chosen by accuracy on validation images on which the original was probably trained: "
                f"its accuracy there is {percent(known)}{tested}. The loss there says little about new images."
            )
    return found


def is_far_above(validation: float, validation_images: int | None, verify: Verify) -> bool:
    """Whether the original's accuracy on validation images exceeds that on test images by more than chance explains.

    That is, by more than one point and more than three standard errors of the difference of the two shares.
    """
    test, test_images = verify.original.runtime, verify.test_images
    if test is None or not validation_images:
        return False
    variance = validation * (1 - validation) / validation_images + test * (1 - test) / test_images
    return bool(validation - test > max(FAR_POINTS / 100, STANDARD_ERRORS * sqrt(variance)))


def _tested(verify: Verify | None) -> str:
    """The original's accuracy on test images, for comparison, with a leading space; empty if it is unknown."""
    if verify is None or verify.original.runtime is None:
        return ""
    return f" (the original's accuracy on the test images is {percent(verify.original.runtime)})"
