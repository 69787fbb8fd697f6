"""The variants of a pruning to one budget: a table, the outcome in words and in one line."""

from catro_deploy.records import Variant, Variants
from catro_deploy.records.variants import STEPS
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import count, nats, percent

__all__ = ["variants_line", "variants_table", "variants_words"]


def variants_line(found: Variants, number: int) -> str:
    """Which one was taken."""
    taken = found.variants[number - 1]
    return f"variant {number} of {len(found.variants)}: {taken.name}; divergence {nats(taken.kl_nats[-1])}"


def variants_table(found: Variants, number: int) -> Table:
    """A row for each variant, the best first; ``number`` is the one that was taken."""
    steps = STEPS[: max(len(one.kl_nats) for one in found.variants)]
    rows = [_cells(place, one, len(steps), number) for place, one in enumerate(found.variants, 1)]
    head = ("", "Variant", "Latency, measured", "MACs used", *(f"Divergence, {step}" for step in steps), "Same answer")
    if any(one.validation_accuracy is not None for one in found.variants):
        head = (*head, "Accuracy")
    return Table((*head, ""), tuple((*row[: len(head)], row[-1]) for row in rows), frozenset(range(2, len(head))))


def _cells(place: int, one: Variant, steps: int, number: int) -> tuple[str, ...]:
    if one.speedup is None:
        return (str(place), one.name, "no network meets the budget", *[""] * (steps + 4))
    reached = [nats(kl) for kl in one.kl_nats] + [""] * (steps - len(one.kl_nats))
    latency, macs, agreement, accuracy = (
        "" if figure is None else form(figure)
        for figure, form in (
            (one.speedup.ratio, "{:.3f}x".format),
            (one.macs_share, percent),
            (one.agreement, percent),
            (one.validation_accuracy, percent),
        )
    )
    outcome = "taken" if place == number else ""
    return (str(place), one.name, latency, macs, *reached, agreement, accuracy, outcome)


def variants_words(found: Variants) -> str:
    """What the figures refer to, and how to take another variant."""
    text = (
        f"{count(len(found.variants))} variants of the pruning were brought to the budget by measurement, in "
        f"{found.minutes:.0f} minutes. Divergence (KL, in nats), agreement and accuracy are on "
        f"{count(found.validation_images)} validation images, after the last step that a variant reached: only the "
        "best of each step go on. The test images were not used. The one taken was then fine-tuned in full: the rest "
        "of this report is about it. To continue with another: --take and its number."
    )
    if found.left_out:
        text += f" Not begun for lack of time (--search-minutes): {found.left_out} more."
    return text
