"""The variants of a pruning: a table, and the outcome in detail and in one line."""

from itertools import compress

from catro_deploy.records import Variant, Variants
from catro_deploy.records.variants import BUDGET, STEPS, TARGET
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import nats, percent
from catro_deploy.units import counted

__all__ = ["dominating", "variants_line", "variants_table", "variants_words"]


def variants_line(found: Variants, number: int) -> str:
    """The variant that was taken, in one line."""
    taken = found.variants[number - 1]
    return f"variant {number} of {len(found.variants)}: {taken.name}; divergence {nats(taken.kl_nats[-1])}"


def dominating(found: Variants) -> list[int]:
    """Numbers of the variants that are faster and, after as many steps, nearer to the original than the first."""
    first, *others = found.variants
    return [
        number
        for number, one in enumerate(others, 2)
        if one.speedup and first.speedup and one.speedup.ratio < first.speedup.ratio
        if len(one.kl_nats) == len(first.kl_nats) and one.kl_nats[-1] < first.kl_nats[-1]
    ]


def variants_table(found: Variants, number: int) -> Table:
    """A row for each variant, best first; ``number`` is the one that was taken."""
    steps = STEPS[: max(len(one.kl_nats) for one in found.variants)]
    head = ["", "Variant", "Latency", "MACs", "Screened", "Untrained", *steps[1:], "Agreement", "Accuracy"]
    rows = [_cells(place, one, len(steps), number) for place, one in enumerate(found.variants, 1)]
    used = [any(column) for column in zip(*rows, strict=True)]
    head, *rows = (list(compress(line, used)) for line in (head, *rows))
    return Table(tuple(head), tuple(map(tuple, rows)), frozenset(range(2, len(head))))


def _cells(place: int, one: Variant, steps: int, number: int) -> list[str]:
    first = [f"{place}, taken" if place == number else str(place), one.name]
    screened = "" if one.screened_nats is None else _plain(one.screened_nats)
    if one.speedup is None:
        return [*first, "not met", "", screened, *[""] * (steps + 2)]
    reached = [_plain(kl) for kl in one.kl_nats] + [""] * (steps - len(one.kl_nats))
    scores = ["" if score is None else percent(score) for score in (one.agreement, one.validation_accuracy)]
    return [*first, f"{one.speedup.ratio:.3f}x", f"{one.macs_share:.0%}", screened, *reached, *scores]


def _plain(kl_nats: float) -> str:
    return nats(kl_nats).partition(" ")[0]


def variants_words(found: Variants) -> str:
    """What the figures mean, and how to take another variant."""
    several = any(BUDGET in one.changes and TARGET not in one.changes for one in found.variants)
    text = (
        f"{counted(len(found.variants), 'variant was', 'variants were')} pruned to "
        f"{'their budgets' if several else 'the budget'} by measurement, in {found.minutes:.0f} min. The divergence "
        "from the original's outputs (KL, in nats, at the best common scale of the logits) is shown untrained and "
        "after each step of training; only the best of each step continue. Agreement and accuracy are those after "
        f"the last step. All are on {counted(found.validation_images, 'validation image')}; the test images were not "
        "used. The one taken was then fine-tuned in full: the rest of this report is about it. To continue with "
        "another: --take and its number."
    )
    if found.screened:
        text += (
            f" {counted(found.screened, 'variant was', 'variants were')} screened before, in floating point, by "
            "predicted latency and a reconstruction from a few training images; those that were then expected to be "
            "nearest were pruned."
        )
    if several:
        text += (
            " Each budget was searched separately. Of the best variants of the budgets, the fastest that keeps the "
            "accuracy on validation images within --max-drop is taken; without --max-drop, or if none does, that of "
            "--budget."
        )
    if any(TARGET in one.changes for one in found.variants):
        text += (
            " Latencies are shares of the original's latency on the given target. The original's latency differs on "
            "other targets, so a budget there is a different share of it: the one with the same absolute latency."
        )
    if found.left_out:
        text += f" Not pruned for lack of time (--search-minutes): {found.left_out} more."
    return text
