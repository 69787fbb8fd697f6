"""The rows of front.py: tasks, budgets, pruning methods and training recipes; and where their results are stored."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.accuracy.reconstruction_rows import FASTNAS, PEER_RECIPES, PEERS, TRAININGS, Row
from benchmarks.common import read_result

__all__ = [
    "BUDGETS",
    "OURS",
    "RESULT",
    "TASKS",
    "TRAINED",
    "WAYS",
    "all_rows",
    "rows_of",
    "stored_rows",
]

RESULT = "front.json"
# Rows that both benchmarks have are run by either of them and read from its results.
SHARED = "reconstruction.json"
# Keys of CASES in reconstruction_rows.py.
TASKS = (
    "resnet20-gtsrb",
    "resnet20-gtsrb-directions",
    "resnet20-cifar10",
    "resnet56-cifar10",
    "mobilenet_v2-gtsrb",
    "efficientnet_lite0-photographs",
)
BUDGETS = ("0.8x", "0.65x", "0.5x", "0.35x", "0.2x")
TRAINED = tuple(name for name in TRAININGS if name != "100 steps")
OURS = "ours"
# Pruning method -> training recipes; an untrained network is evaluated once, under the first recipe.
WAYS: Mapping[str, Sequence[str]] = {
    OURS: ("gentle",),
    "paper": ("fast",),
    **dict.fromkeys((*PEERS, FASTNAS), PEER_RECIPES),
}


def rows_of(
    tasks: Iterable[str], methods: Iterable[str], budgets: Iterable[str], trainings: Iterable[str], seeds: Sequence[int]
) -> list[Row]:
    """The rows of these, task by task, cheap trainings first; without training, only the first seed."""
    ways = [(method, recipe) for method in methods for recipe in WAYS[method]]
    return [
        Row(task, budget, method, recipe, training, seed)
        for task in tasks
        for training in trainings
        for seed in (seeds[:1] if training == "none" else seeds)
        for budget in budgets
        for method, recipe in ways
        if training != "none" or recipe == WAYS[method][0]
    ]


def all_rows(seeds: Sequence[int] = (0, 1, 2)) -> list[Row]:
    """Every row of the benchmark."""
    return rows_of(TASKS, WAYS, BUDGETS, TRAINED, seeds)


def stored_rows() -> dict[str, Mapping[str, Any]]:
    """The results by row name, including those of the reconstruction benchmark where it has the same row.

    The seeds of a point are never of both: the networks may differ.
    """
    own: Mapping[str, Any] = read_result(RESULT).get("rows", {})
    others: Mapping[str, Any] = read_result(SHARED).get("rows", {})
    machines = {row["environment"]["processor"] for row in own.values()}
    points = {without_seed(name) for name in own}
    wanted = {row.name for row in all_rows() if without_seed(row.name) not in points}
    shared = {
        name: row for name, row in others.items() if name in wanted and row["environment"]["processor"] in machines
    }
    return shared | dict(own)


def without_seed(name: str) -> str:
    """The name of a row without its last part, the seed."""
    return name.rpartition("-")[0]
