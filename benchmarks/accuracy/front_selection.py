"""The rows of front.py that are run by default."""

from collections.abc import Mapping, Sequence

from benchmarks.accuracy.front_rows import OURS
from benchmarks.accuracy.reconstruction_rows import FASTNAS, PEER_RECIPES, Row

__all__ = ["is_selected"]

# Of the trained networks, only these are compared by default, and ours at all budgets, to limit the trainings: on
# CIFAR-10, torch-pruning's criteria end close to each other when trained alike. Recipes are compared with one of them.
SELECTED: Mapping[str, Sequence[str]] = {
    "paper": ("fast",),
    "torch-pruning L1": PEER_RECIPES,
    **dict.fromkeys(("torch-pruning Taylor", "torch-pruning group norm", FASTNAS), ("gentle",)),
}
SELECTED_BUDGETS = ("0.5x", "0.35x")
# On the signs, ours has the original's accuracy after 3 epochs; larger networks take up to an hour per row on a CPU.
LONG_TRAINING, LONG_TASK = "10 epochs", "resnet20-cifar10"


def is_selected(row: Row) -> bool:
    """Whether ``row`` is run by default: all methods without training, and a selection of trained networks."""
    if row.training == "none":
        return True
    if row.training == LONG_TRAINING and row.case != LONG_TASK:
        return False
    return row.pruning == OURS or (row.budget in SELECTED_BUDGETS and row.recipe in SELECTED.get(row.pruning, ()))
