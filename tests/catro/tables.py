"""A cost given by tables, values given by numbers, and the best allocation by brute force."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from catro_deploy.catro.gains import CostModel, CostTables, GroupChoice, GroupValue
from catro_deploy.records import Branch

Widths = Mapping[str, int]


class TableCost:
    """A CostModel that looks up its costs: tables over the candidates of each group and of pairs of groups."""

    def __init__(
        self,
        candidates: Mapping[str, Sequence[int]],
        single: Mapping[str, Sequence[float]] | None = None,
        pair: Mapping[tuple[str, str], Sequence[Sequence[float]]] | None = None,
        constant: float = 0.0,
    ) -> None:
        self.candidates = candidates
        given = single or {}
        singles = {name: np.array(given.get(name, np.zeros(len(widths)))) for name, widths in candidates.items()}
        pairs = {names: np.array(table, dtype=float) for names, table in (pair or {}).items()}
        self.content = CostTables(constant, singles, pairs)

    def predict(self, widths: Widths) -> float:
        at = {name: list(choices).index(widths[name]) for name, choices in self.candidates.items()}
        singles = sum(table[at[name]] for name, table in self.content.single.items())
        return float(self.content.constant + singles + sum(t[at[a], at[b]] for (a, b), t in self.content.pair.items()))

    def change(self, widths: Widths, group: str, width: int) -> float:
        return self.predict({**widths, group: width}) - self.predict(widths)

    def neighbours(self, group: str) -> list[str]:
        return list({group: None} | {name: None for names in self.content.pair if group in names for name in names})

    def tables(self, candidates: Mapping[str, Sequence[int]]) -> CostTables:
        assert {name: tuple(widths) for name, widths in candidates.items()} == dict(self.candidates)
        return self.content

    def rows(self, candidates: Mapping[str, Sequence[int]]) -> list[CostTables]:
        return [self.tables(candidates)]


def valued(**values: Mapping[int, float]) -> list[GroupValue]:
    """Groups with the value of each candidate width."""
    return [
        GroupValue(GroupChoice(name, tuple(worth)), np.array(list(worth.values()), dtype=float))
        for name, worth in values.items()
    ]


def worth(values: Sequence[GroupValue], widths: Widths) -> float:
    return sum(dict(zip(group.choice.widths, group.value, strict=True))[widths[group.choice.name]] for group in values)


def possible(values: Sequence[GroupValue], branches: Sequence[Branch] = ()) -> list[dict[str, int]]:
    """Every combination of candidates in which the groups of a branch are 0 together or not at all."""
    names = [group.choice.name for group in values]
    combinations = [
        dict(zip(names, widths, strict=True)) for widths in product(*(group.choice.widths for group in values))
    ]
    return [
        widths
        for widths in combinations
        if all(len({widths[name] == 0 for name in branch.groups}) == 1 for branch in branches)
    ]


def best(values: Sequence[GroupValue], cost: CostModel, budget: float, branches: Sequence[Branch] = ()) -> float | None:
    """The highest value within the budget; None if no combination is within it."""
    fitting = [widths for widths in possible(values, branches) if cost.predict(widths) <= budget]
    return max((worth(values, widths) for widths in fitting), default=None)


def narrower_than_it_could_be(values: Sequence[GroupValue], cost: CostModel, budget: float, widths: Widths) -> list:
    """Wider candidates of single groups that would also be within the budget, without groups that are removed."""
    return [
        (group.choice.name, wider)
        for group in values
        for wider in group.choice.widths
        if 0 < widths[group.choice.name] < wider and cost.predict({**widths, group.choice.name: wider}) <= budget
    ]
