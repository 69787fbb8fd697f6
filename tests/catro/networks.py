"""Random small networks for the allocations: tables with cliffs, values, branches and a budget."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from catro_deploy.catro.gains import GroupChoice, GroupValue
from catro_deploy.records import Branch
from tests.catro.tables import TableCost, possible


@dataclass(frozen=True)
class Drawn:
    values: list[GroupValue]
    cost: TableCost
    budget: float
    branches: list[Branch]


@st.composite
def networks(draw: st.DrawFn) -> Drawn:
    """A chain of up to four groups with residual connections, whose costs rise and fall arbitrarily with the widths.

    The budget is exactly the cost of some combination of widths, or 1% more.
    """
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 4))
    gone = draw(st.sampled_from([(), (1,), (0, 2), (0, 1, 3)]))
    removable = tuple(f"g{place}" for place in gone if place < count)
    branches = [Branch("branch", removable)] if removable else []
    candidates = {}
    for name in (f"g{place}" for place in range(count)):
        widths = tuple(int(w) for w in np.sort(generator.choice(np.arange(1, 30), generator.integers(1, 5), False)))
        candidates[name] = (0, *widths) if name in removable else widths
    met = [*pairwise(candidates), *([("g0", "g2"), ("g0", "g3")] if count == 4 else [])]
    cost = TableCost(
        candidates,
        {name: _free_at_0(generator.uniform(0, 5, len(widths)), widths) for name, widths in candidates.items()},
        {(a, b): _cliffs(generator, candidates[a], candidates[b]) for a, b in met},
        draw(st.sampled_from([0.0, 3.0])),
    )
    values = [
        GroupValue(GroupChoice(name, widths), np.cumsum(generator.exponential(1, len(widths)).round(2)))
        for name, widths in candidates.items()
    ]
    costs = sorted(cost.predict(widths) for widths in possible(values, branches))
    place = draw(st.integers(0, len(costs) - 1))
    budget = costs[place] * draw(st.sampled_from([1.0, 1.0, 1.01]))
    return Drawn(values, cost, budget, branches)


def _cliffs(generator: np.random.Generator, one: tuple[int, ...], other: tuple[int, ...]) -> np.ndarray:
    smooth = np.outer(one, other) / 20
    table = np.where(generator.random(smooth.shape) < 0.3, 2.5, 1.0) * smooth + generator.uniform(0, 2, smooth.shape)
    return _free_at_0(_free_at_0(table, one).T, other).T


def _free_at_0(table: np.ndarray, widths: tuple[int, ...]) -> np.ndarray:
    table[np.array(widths) == 0] = 0
    return table
