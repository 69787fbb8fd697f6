"""The closed loop: allocate with cost models, build, measure and correct the models until every budget is met."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression
from typing import Literal

from catro_deploy.catro.gains import Allocation, Bounded
from catro_deploy.errors import BudgetError
from catro_deploy.latency.candidate import Measured
from catro_deploy.progress import Progress
from catro_deploy.pruning.solvers import Solver

__all__ = ["APART", "NEARLY_ALL", "ROUNDS", "Attempt", "Axis", "Measure", "certain", "closed_loop"]

ROUNDS = 6
# A network that uses this share of a budget is accepted.
NEARLY_ALL = 0.97
# Disturbed measurements of one network that differ by no more than this share confirm each other.
AGREEMENT = 0.03
# Once a model of time is corrected, the next round aims below the budget by this share, since measurements vary. It
# doubles each time that it was too small: a network slightly below the budget is useful, one that misses it is not.
MARGIN = 0.01
# Whether a model is wrong by more than a factor shows only if predictions are this far apart; below, noise decides.
APART = 0.85

Measure = Callable[[Mapping[str, int]], Measured]
"""Builds the network of some widths and measures it."""


@dataclass(frozen=True)
class Axis:
    """One resource that networks use and that budgets limit.

    Attributes:
        name: its name in messages.
        use: the model that predicts it.
        most: the largest use, by the model, that is allowed before anything is measured.
        share: the share of its strictest budget that a measured network uses; None if the model is exact.
        delay: the part of that share that smaller networks use as well, as a measurement shows; None if there is none.
        margin: the share of a budget that is initially left free.
        called: what a value of the model is called in messages.
    """

    name: str
    use: Bounded
    most: float
    share: Callable[[Measured], float] | None = None
    delay: Callable[[Measured], float] | None = None
    margin: float = 0.0
    called: Literal["predicted", "estimate"] = "predicted"

    def used(self, widths: Mapping[str, int], measured: Measured) -> float:
        """The share of its strictest budget that a network of these ``widths`` uses."""
        return self.use.predict(widths) / self.most if self.share is None else self.share(measured)

    def delayed(self, measured: Measured) -> float:
        """The part of that share that smaller networks use as well."""
        return 0.0 if self.delay is None else self.delay(measured)


@dataclass(frozen=True)
class Attempt:
    """One round of the loop: by axis, the ``predicted`` use, and the share of the strictest budget that is ``used``.

    ``delays`` are the parts of these shares that smaller networks use as well.
    """

    allocation: Allocation
    measured: Measured
    predicted: tuple[float, ...]
    used: tuple[float, ...]
    delays: tuple[float, ...]

    @property
    def most_used(self) -> float:
        """The largest used share of a budget; if above 1, a budget is missed."""
        return max(self.used)

    @property
    def is_disturbed(self) -> bool:
        """Whether a measurement was probably changed by something else on a device."""
        return self.is_delayed or any(device.disturbed for device in self.measured.devices)

    @property
    def is_delayed(self) -> bool:
        """Whether, in this measurement, networks of any widths miss a budget: it does not show which widths meet it."""
        return max(self.delays) >= 1

    def is_confirmed_by(self, other: "Attempt") -> bool:
        """Whether ``other`` is another measurement of the same network, with nearly the same result."""
        if other is self or other.allocation.widths != self.allocation.widths:
            return False
        return all(math.isclose(one, two, rel_tol=AGREEMENT) for one, two in zip(self.used, other.used, strict=True))

    @property
    def binding(self) -> int:
        """The index of the axis with that share."""
        return self.used.index(self.most_used)


def closed_loop(solver: Solver, measure: Measure, axes: Sequence[Axis], progress: Progress) -> list[Attempt]:
    """Allocate and measure until a budget is nearly used up and none is missed, or nothing new would be measured.

    Uncertain measurements do not end the loop, and only correct the models as long as there are no others.

    The first of ``axes`` is the one that gains are weighed against, the others are the constraints of ``solver``.
    """
    attempts: list[Attempt] = []
    most = [axis.most for axis in axes]
    with progress.task("Meeting the budget", ROUNDS) as task:
        while len(attempts) < ROUNDS:
            allocation = _next(solver, most, axes, attempts)
            if allocation is None:
                break
            attempts.append(_attempt(allocation, measure, axes))
            progress.note(_round_words(len(attempts), attempts[-1], axes))
            task.advance()
            reliable = certain(attempts)
            if NEARLY_ALL <= attempts[-1].most_used <= 1 and attempts[-1] in reliable:
                break
            known = [attempt for attempt in reliable or attempts if not attempt.is_delayed]
            most = [_aim(axis, place, known) for place, axis in enumerate(axes)]
    return attempts


def certain(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The undisturbed ``attempts``, and disturbed ones that another measurement of the same network confirms."""
    return [one for one in attempts if not one.is_disturbed or any(map(one.is_confirmed_by, attempts))]


def _attempt(allocation: Allocation, measure: Measure, axes: Sequence[Axis]) -> Attempt:
    widths = allocation.widths
    measured = measure(widths)
    predicted = tuple(axis.use.predict(widths) for axis in axes)
    used = tuple(axis.used(widths, measured) for axis in axes)
    return Attempt(allocation, measured, predicted, used, tuple(axis.delayed(measured) for axis in axes))


def _round_words(number: int, attempt: Attempt, axes: Sequence[Axis]) -> str:
    words = []
    if attempt.measured.devices:
        first = attempt.measured.devices[0]
        words += [
            f"{axes[0].called} {attempt.allocation.cost:.0f} us, measured {first.candidate_us:.0f} us, "
            f"{first.speedup.ratio:.3f} of the original"
        ]
    if len(axes) == 1:
        words += [f"{attempt.most_used:.1%} of the budget"]
    else:
        shares = (f"{axis.name} {used:.1%}" for axis, used in zip(axes, attempt.used, strict=True))
        words += [f"of the budgets {', '.join(shares)}"]
    if attempt.is_delayed:
        words += ["delays alone exceed the budget"]
    elif attempt.is_disturbed:
        words += ["the machine was disturbed"]
    return f"round {number}: {'; '.join(words)}"


def _aim(axis: Axis, place: int, attempts: Sequence[Attempt]) -> float:
    """What the next network may use, by the model of the axis at index ``place``.

    With networks on both sides of the budget, a power law interpolates between the nearest two. Before that, the model
    is corrected by an overhead and a factor.
    """
    if axis.share is None or not attempts:
        return axis.most
    # A network that was measured again is one point.
    points = list({attempt.predicted[place]: attempt.used[place] for attempt in attempts}.items())
    within = max((point for point in points if point[1] <= 1), key=lambda point: point[1], default=None)
    above = min((point for point in points if point[1] > 1), key=lambda point: point[1], default=None)
    exceeded = sum(used > 1 for _, used in points)
    wanted = 1 - axis.margin * 2.0 ** max(0, exceeded - 1)
    if within is None or above is None or within[0] >= above[0]:
        overhead, factor = _correction(points, wanted, attempts[-1].delays[place])
        return (wanted - overhead) / factor
    share = max(0.0, math.log(wanted / within[1])) / math.log(above[1] / within[1])
    return within[0] * math.pow(above[0] / within[0], share)


def _correction(points: Sequence[tuple[float, float]], wanted: float, delay: float) -> tuple[float, float]:
    """The overhead and the factor by which the used share follows from a prediction, of ``points`` with both.

    Overheads, such as copies to a GPU, are in no model of layers. One is assumed if the predictions are far enough
    apart, and it is less than the ``wanted`` share; otherwise the model is wrong by the same factor as in the last
    round, in which ``delay`` was measured as overhead.
    """
    predictions = [predicted for predicted, _ in points]
    if min(predictions) < APART * max(predictions):
        factor, overhead = linear_regression(predictions, [used for _, used in points])
        if factor > 0 and 0 < overhead < wanted:
            return overhead, factor
    predicted, used = points[-1]
    overhead = delay if delay < wanted else 0.0
    return overhead, (used - overhead) / predicted


def _next(
    solver: Solver, most: Sequence[float], axes: Sequence[Axis], attempts: Sequence[Attempt]
) -> Allocation | None:
    """The network to measure next; None if there is nothing new to measure.

    If no network is predicted to be within the limits, it is the fastest, unless that exceeds another limit than the
    first, or a network that meets all budgets has been measured.
    """
    try:
        found = solver.solve(*most)
    except BudgetError:
        fits = all(
            axis.use.predict(solver.fastest.widths) <= limit for axis, limit in zip(axes[1:], most[1:], strict=True)
        )
        if not fits or any(attempt.most_used <= 1 for attempt in attempts):
            return None
        found = solver.fastest  # by the model it is too slow, but the model may be wrong
    known = [attempt.allocation.widths for attempt in certain(attempts)]
    return None if found.widths in known else found
