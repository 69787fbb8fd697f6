"""The provably optimal allocation: a mixed-integer linear program, solved by HiGHS.

Each group has a binary variable for every candidate width, exactly one of which is 1. If a layer depends on two groups,
the cost of every pair of widths has a continuous variable whose marginals are the two groups' binaries (the local
polytope of graphical models; Wainwright and Jordan, 2008), so that it is 1 for the chosen pair. The value is maximised
subject to one row for the budget, and one or more for each additional limit.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from catro_deploy.catro.gains import (
    Allocation,
    CostModel,
    CostTables,
    GroupValue,
    Limit,
    check_branches,
    weigh,
)
from catro_deploy.catro.greedy import greedy
from catro_deploy.catro.quiet import printing_nothing
from catro_deploy.errors import BudgetError
from catro_deploy.records import Branch

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["exact"]

# The solver accepts sums up to 1e-6 above a bound: a result that exceeds the budget is solved again with a lower one.
MARGINS = (0.0, 2e-6, 2e-5)
# Share of the largest possible gain: the solver's bound is not more precise.
ROUNDING = 1e-9
# What the budget and the largest value are scaled to, well above that tolerance.
SCALE = 100.0


def exact(
    values: Sequence[GroupValue],
    cost: CostModel,
    budget: float,
    branches: Sequence[Branch] = (),
    *,
    limits: Sequence[Limit] = (),
    limit_s: float = 10,
    gap: float = 0.005,
) -> Allocation:
    """The widths of the highest value within ``budget`` and the other ``limits``.

    They are proven optimal to a ``gap`` relative to their loss against the largest widths, or are the best that were
    found in ``limit_s`` seconds.

    They are never worth less than the greedy allocation, which is also the fallback. The rest of the budget goes to
    wider candidates, so no chosen width is slower than a wider one.

    Raises:
        BudgetError: no widths within all limits were found, or a layer depends on more than two groups.
        ValueError: ``branches`` and the groups with a candidate 0 do not agree.
    """
    ends = time.monotonic() + limit_s
    candidates = {group.choice.name: group.choice.widths for group in values}
    rows = [_Row(cost.tables(candidates), budget)]
    rows += [_Row(tables, limit.most) for limit in limits for tables in limit.use.rows(candidates)]
    program = _Program(values, rows, branches)

    def holds(widths: dict[str, int]) -> bool:
        return cost.predict(widths) <= budget and all(limit.holds(widths) for limit in limits)

    found: list[Allocation] = []
    failure = None
    try:
        found.append(greedy(values, cost, budget, branches, limits=limits))
    except BudgetError as error:
        failure = error
    widths, bound = _within(program, holds, ends, gap)
    if widths is not None:
        found.append(greedy(values, cost, budget, branches, limits=limits, start=widths))
    if failure and not found:
        raise failure
    best = max(found, key=lambda allocation: allocation.value)
    return weigh(values, cost, best.widths, program.gap(best.value, bound))


@dataclass(frozen=True)
class _Row:
    """One row of the program: the sum of ``tables`` is at most ``most``."""

    tables: CostTables
    most: float


def _within(
    program: "_Program", holds: Callable[[dict[str, int]], bool], ends: float, gap: float
) -> tuple[dict[str, int] | None, float]:
    """Widths that were verified to be within all limits, if any were found before the time ``ends``; and the bound."""
    bound = math.inf
    for margin in MARGINS:
        left_s = ends - time.monotonic()
        if left_s <= 0:
            break
        widths, proven = program.solve(margin, left_s, gap)
        bound = bound if margin else proven
        if widths is None:
            break
        if holds(widths):
            return widths, bound
    return None, bound


class _Program:
    """Its variables: binaries of all groups' candidates, then a matrix for each pair of groups in a row's tables."""

    def __init__(self, values: Sequence[GroupValue], rows: Sequence[_Row], branches: Sequence[Branch]) -> None:
        check_branches(values, branches)
        self._choices = [group.choice for group in values]
        gains = [group.value - group.value[0] for group in values]
        self._base = sum(float(group.value[0]) for group in values)
        self._most = sum(float(gain[-1]) for gain in gains)
        self._rows = rows
        ends = np.cumsum([len(gain) for gain in gains])
        self._places = {
            choice.name: np.arange(end - len(choice.widths), end)
            for choice, end in zip(self._choices, ends, strict=True)
        }
        self._pairs: dict[tuple[str, str], NDArray[np.intp]] = {}
        first = int(ends[-1])
        for names in dict.fromkeys(names for row in rows for names in row.tables.pair):
            shape = [len(self._places[name]) for name in names]
            self._pairs[names] = first + np.arange(math.prod(shape)).reshape(shape)
            first += math.prod(shape)
        lost = [gain[-1] - gain for gain in gains]
        self._lost = np.concatenate([*lost, np.zeros(first - int(ends[-1]))])
        self._costs = np.array([self._spread(row.tables) for row in rows])
        self._equations = self._written(branches)
        self._binaries = np.arange(first) < ends[-1]

    def solve(self, margin: float, limit_s: float, gap: float) -> tuple[dict[str, int] | None, float]:
        """The best widths found, if any, the share ``margin`` below all limits; and the proven upper bound of value."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        matrix, right = self._equations.arrays()
        most = np.array([row.most * (1 - margin) for row in self._rows])
        constants = np.array([row.tables.constant for row in self._rows])
        scale = SCALE / np.where(most == 0, 1.0, np.abs(most))
        within = LinearConstraint(self._costs * scale[:, None], -np.inf, (most - constants) * scale)
        # The loss against the largest widths is minimised, since the solver's gap is relative to its objective.
        with printing_nothing():  # HiGHS has a message that no option turns off
            found = milp(
                SCALE * self._lost / (self._most or 1.0),
                integrality=self._binaries,
                bounds=Bounds(0, 1),
                constraints=[LinearConstraint(matrix, right, right), within],
                options={"time_limit": limit_s, "mip_rel_gap": gap},
            )
        bound = math.inf
        if found.mip_dual_bound is not None:
            bound = self._most - found.mip_dual_bound * self._most / SCALE
        if found.x is None:
            return None, self._base + bound
        return {
            choice.name: choice.widths[int(np.argmax(found.x[self._places[choice.name]]))] for choice in self._choices
        }, self._base + bound

    def gap(self, value: float, bound: float) -> float:
        """The share of the gain over the smallest network that ``value`` may miss, given the upper ``bound``."""
        most = min(bound - self._base, self._most)
        missing = most - (value - self._base)
        return missing / most if missing > ROUNDING * self._most else 0.0

    def _spread(self, tables: CostTables) -> NDArray[np.float64]:
        """What each variable adds to the sum of ``tables``."""
        costs = np.zeros(len(self._lost))
        for name, table in tables.single.items():
            costs[self._places[name]] = table
        for names, pair in tables.pair.items():
            costs[self._pairs[names]] = pair
        return costs

    def _written(self, branches: Sequence[Branch]) -> "_Equations":
        equations = _Equations(len(self._lost))
        for place in self._places.values():
            equations.add(place[None, :], np.ones(len(place)), 1.0)
        for (one, other), pair in self._pairs.items():
            for sums, binaries in ((pair, self._places[one]), (pair.T, self._places[other])):
                columns = np.hstack([sums, binaries[:, None]])
                equations.add(columns, np.append(np.ones(len(sums[0])), -1.0), 0.0)
        for branch in branches:
            for name in branch.groups[1:]:
                gone = [self._places[branch.groups[0]][0], self._places[name][0]]
                equations.add(np.array([gone]), np.array([1.0, -1.0]), 0.0)
        return equations


class _Equations:
    """Sparse linear equations, collected in several calls."""

    def __init__(self, variables: int) -> None:
        self._variables = variables
        self._columns: list[NDArray[np.intp]] = []
        self._coefficients: list[NDArray[np.float64]] = []
        self._right: list[float] = []

    def add(self, columns: NDArray[np.intp], coefficients: NDArray[np.float64], right: float) -> None:
        """An equation for each row of ``columns``, all with the same ``coefficients`` (one for each column)."""
        self._columns.extend(columns)
        self._coefficients.extend([coefficients] * len(columns))
        self._right.extend([right] * len(columns))

    def arrays(self) -> "tuple[csr_array, NDArray[np.float64]]":
        """The sparse matrix and the right-hand sides."""
        from scipy.sparse import csr_array

        starts = np.cumsum([0, *(len(row) for row in self._columns)])
        parts = (np.concatenate(self._coefficients), np.concatenate(self._columns), starts)
        return csr_array(parts, shape=(len(self._right), self._variables)), np.array(self._right)
