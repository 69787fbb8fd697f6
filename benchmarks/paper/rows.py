"""The rows of the paper's tables (CATRO, arXiv 2110.10921): what is pruned, how far and how, and its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["METHODS", "PAPER", "PEERS", "TRAINING", "Row", "rows_of"]

OURS = {"reconstruct": True, "worth": "measured", "allocation": "exact"}
# Method -> settings of [prune].
METHODS: dict[str, dict[str, Any]] = {
    "catro": {"criterion": "catro", "allocation": "greedy"},
    "one-pass": {"criterion": "catro", "allocation": "greedy"},
    "l1": {"criterion": "l1", "allocation": "greedy"},
    "l1-uniform": {"criterion": "l1", "allocation": "uniform"},
    "fpgm": {},
    "group-l2": {},
    "ours": OURS,
    "ours-cutmix": OURS,
}
# Method -> settings of [finetune] besides those of its recipe.
TRAINING: dict[str, dict[str, Any]] = {"ours-cutmix": {"cutmix": 1.0}}
# Method -> its importance in torch-pruning.
PEERS = {"fpgm": "FPGMImportance", "group-l2": "GroupMagnitudeImportance"}
RECIPES = ("paper", "fast")
SPEED, DIRECTION = "speed_limits", "direction_signs"
VEHICLES = ("airplane", "automobile", "ship", "truck")
# Table 1: percent of MACs kept, by subtask and row, and the caps on widths.
SUBTASKS = {(SPEED, 90): 9.25, (DIRECTION, 90): 9.20, (SPEED, 97): 2.28, (DIRECTION, 97): 2.20}
MAX_WIDTH = {90: 0.5, 97: 0.375}
# Table 2: percent of MACs kept, by network.
CIFAR = {"cifar_resnet20": 47.3, "cifar_resnet32": 43.9, "cifar_resnet56": 46.0}
# Accuracy after the paper's 200 epochs, from its own baselines.
PAPER = {
    (1, SPEED, 90, "catro"): 0.9939,
    (1, SPEED, 90, "l1"): 0.9923,
    (1, DIRECTION, 90, "catro"): 0.9904,
    (1, DIRECTION, 90, "l1"): 0.9847,
    (1, SPEED, 97, "catro"): 0.9697,
    (1, SPEED, 97, "l1"): 0.9575,
    (1, DIRECTION, 97, "catro"): 0.9859,
    (1, DIRECTION, 97, "l1"): 0.9819,
    (2, "cifar_resnet20", "catro"): 0.9176,
    (2, "cifar_resnet32", "catro"): 0.9317,
    (2, "cifar_resnet56", "catro"): 0.9387,
}
# Epochs where those of the recipe would take too long on a CPU: hours per row, or many rows.
FEW = 10
# Epochs that the paper's 200 are compared with.
SOME = 20
# Table 3.
ABLATED: dict[str, Any] = {"model": "cifar_resnet20", "data": "cifar10", "classes": VEHICLES, "epochs": FEW}


@dataclass(frozen=True)
class Row:
    """One network to prune and fine-tune.

    Attributes:
        table: number of the table in this project, 1 to 4.
        case: what the compared methods have in common.
        method: one of ``METHODS``.
        model: factory of the unpruned network.
        kept_percent: maximum percentage of the multiply-accumulates.
        data: ``gtsrb`` or ``cifar10``.
        classes: wanted classes, or their group; empty: all.
        chosen_for: group whose images choose the channels, if different.
        prune: further settings of [prune].
        recipe: recipe of fine-tuning.
        epochs: overrides the epochs of the recipe.
    """

    table: int
    case: str
    method: str
    model: str
    kept_percent: float
    data: str = "gtsrb"
    classes: Sequence[str] = ()
    chosen_for: Sequence[str] = ()
    prune: Mapping[str, Any] | None = None
    seed: int = 0
    recipe: str = "fast"
    epochs: int | None = None

    @property
    def name(self) -> str:
        """Key in the results and name of the run folder."""
        recipe = "" if self.recipe == "fast" else f"-{self.recipe}"
        return f"{self.table}-{self.case}-{self.method}{recipe}-seed{self.seed}"


def rows_of(table: int, seeds: Sequence[int]) -> list[Row]:
    """All rows of a table."""
    tables = {1: _table_1, 2: _table_2, 3: _table_3, 4: _table_4}
    return [row for seed in seeds for row in tables[table](seed)]


def _table_1(seed: int) -> list[Row]:
    """Subtasks of GTSRB, and channels chosen for the other subtask."""
    other = {SPEED: DIRECTION, DIRECTION: SPEED}
    rows = []
    for (subtask, cut), kept in SUBTASKS.items():
        fixed: dict[str, Any] = {"model": "cifar_resnet20", "kept_percent": kept, "classes": (subtask,), "seed": seed}
        capped = {"max_width": MAX_WIDTH[cut]}
        for method in ("catro", "l1", "l1-uniform"):
            prune = None if method == "l1-uniform" else capped
            rows.append(Row(1, f"{subtask}-{cut}", method, prune=prune, **fixed))
        rows.append(Row(1, f"{subtask}-{cut}-exchanged", "catro", chosen_for=(other[subtask],), prune=capped, **fixed))
        rows.append(_ours(Row(1, f"{subtask}-{cut}", "catro", **fixed)))
    return rows


def _ours(row: Row, method: str = "ours") -> Row:
    """``row`` with the defaults of this project, except that it is not pruned for latency: widths are not capped."""
    return replace(row, method=method, recipe="gentle", epochs=row.epochs or SOME)


def _table_2(seed: int) -> list[Row]:
    """CIFAR-10, all classes; also after few epochs, which is feasible on a CPU."""
    methods = ("catro", "l1", "fpgm", "group-l2")
    rows = [Row(2, model, method, model, kept, data="cifar10") for model, kept in CIFAR.items() for method in methods]
    few = [replace(row, case=f"{row.case}-briefly", epochs=FEW) for row in rows if row.model == "cifar_resnet20"]
    some = [replace(row, case=f"{row.case}-{SOME} epochs", epochs=SOME) for row in rows if row.method == "catro"]
    all_some = [one for row in some for one in (row, _ours(row), _ours(row, "ours-cutmix"))]
    return [replace(row, seed=seed) for row in (*few, *all_some, *rows)]


def _table_3(seed: int) -> list[Row]:
    """Ablation of the method: four classes of CIFAR-10, on which no network is perfect, at a tenth of the MACs."""
    variants: dict[str, dict[str, Any]] = {
        "as it is": {},
        "no cap on widths": {"max_width": 1.0},
        "uniform widths": {"allocation": "uniform", "max_width": 1.0},
        **{f"{count * len(VEHICLES)} samples": {"samples_per_class": count} for count in (16, 64, 1280)},
        **{f"temperature {value:g}": {"temperature": value} for value in (0.1, 10.0)},
        "no ridge": {"ridge": 0.0},
        **{f"d_min {value}": {"d_min": value} for value in (1, 6)},
        **{f"step {value}": {"step": value} for value in (2, 4)},
    }
    cap = {"max_width": MAX_WIDTH[90]}
    rows = [Row(3, case, "catro", kept_percent=10, prune=cap | prune, **ABLATED) for case, prune in variants.items()]
    rows += [Row(3, "as it is", method, kept_percent=10, prune=cap, **ABLATED) for method in ("one-pass", "l1")]
    rows.append(_ours(Row(3, "as it is", "catro", kept_percent=10, **ABLATED)))
    return [replace(row, seed=seed) for row in (*rows, *_layer_groups())]


def _layer_groups() -> list[Row]:
    """Algorithm 1 alone against L1: a third of the blocks keep a quarter of their inner channels, the rest keep all."""
    parts = {"shallow": "layer1", "middle": "layer2", "deep": "layer3"}
    rows = []
    for part, pruned in parts.items():
        others = [layer for layer in parts.values() if layer != pruned]
        prune = {"allocation": "uniform", "max_width": 0.25, "ignore": others}
        rows += [
            Row(3, f"{part} blocks", method, kept_percent=100, prune=prune, **ABLATED) for method in ("catro", "l1")
        ]
    return rows


def _table_4(seed: int) -> list[Row]:
    """The recipes: the same networks fine-tuned by both."""
    signs = {"data": "gtsrb", "classes": (DIRECTION,)}
    cases: dict[str, tuple[float, dict[str, Any]]] = {
        **{
            f"{DIRECTION}-{cut}": (SUBTASKS[DIRECTION, cut], {**signs, "prune": {"max_width": MAX_WIDTH[cut]}})
            for cut in (90, 97)
        },
        "CIFAR-10 vehicles": (CIFAR["cifar_resnet20"], {"data": "cifar10", "classes": VEHICLES}),
    }
    return [
        Row(4, case, "catro", "cifar_resnet20", kept, seed=seed, recipe=recipe, **fixed)
        for case, (kept, fixed) in cases.items()
        for recipe in RECIPES
    ]
