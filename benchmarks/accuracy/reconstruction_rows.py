"""The rows of reconstruction.py: networks and tasks, pruning methods, and recipes of the training afterwards."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.accuracy.efficientnet_lite import PHOTOGRAPHED

__all__ = [
    "ABLATIONS",
    "CASES",
    "COMPARED",
    "DATASETS",
    "PEERS",
    "PEER_RECIPES",
    "PRUNINGS",
    "RECIPES",
    "TRAININGS",
    "Case",
    "Row",
    "data_sections",
    "rows_of",
]


@dataclass(frozen=True)
class Case:
    """A trained network, a task, and the budgets of reconstruction.py, if any; ``goals`` are by budget and training.

    ``data`` is a key of DATASETS. ``validation`` is the share of the training images that are not trained on.
    """

    title: str
    model: str
    weights: str
    data: str
    budgets: Sequence[str]
    classes: Sequence[str] = ()
    size: int = 32
    validation: float = 0.1
    goals: Mapping[tuple[str, str], float] | None = None


# Name -> data.name, mean and standard deviation of the pixels, and augmentation.
DATASETS = {
    "gtsrb": ("gtsrb", [0.3403, 0.3121, 0.3214], [0.2724, 0.2608, 0.2669], "signs"),
    "cifar10": ("imagefolder", [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010], "objects"),
    "photographs": ("benchmarks.accuracy.efficientnet_lite:photographs", [0.498] * 3, [0.502] * 3, "objects"),
}
CASES = {
    "resnet20-cifar10": Case(
        "ResNet-20, CIFAR-10",
        "cifar_resnet20",
        "cifar10_resnet20.pth",
        "cifar10",
        ("0.5x", "0.35x"),
        validation=0.02,
        goals={
            ("0.5x", "none"): 84.0,
            ("0.5x", "100 steps"): 86.5,
            ("0.5x", "3 epochs"): 90.2,
            ("0.5x", "10 epochs"): 91.3,
            ("0.35x", "none"): 77.0,
            ("0.35x", "100 steps"): 82.0,
            ("0.35x", "3 epochs"): 87.5,
            ("0.35x", "10 epochs"): 89.5,
        },
    ),
    "resnet56-cifar10": Case(
        "ResNet-56, CIFAR-10",
        "cifar_resnet56",
        "cifar10_resnet56.pth",
        "cifar10",
        ("0.5x",),
        validation=0.02,
        goals={
            ("0.5x", "none"): 89.0,
            ("0.5x", "100 steps"): 91.0,
            ("0.5x", "3 epochs"): 93.0,
            ("0.5x", "10 epochs"): 93.6,
        },
    ),
    "resnet20-gtsrb": Case(
        "ResNet-20, speed limits of GTSRB",
        "cifar_resnet20",
        "gtsrb_resnet20.pth",
        "gtsrb",
        ("0.25x",),
        ("speed_limits",),
        goals={
            ("0.25x", "none"): 91.0,
            ("0.25x", "100 steps"): 96.0,
            ("0.25x", "3 epochs"): 98.9,
            ("0.25x", "10 epochs"): 99.3,
        },
    ),
    "resnet20-gtsrb-directions": Case(
        "ResNet-20, direction signs of GTSRB",
        "cifar_resnet20",
        "gtsrb_resnet20.pth",
        "gtsrb",
        (),
        ("direction_signs",),
    ),
    "mobilenet_v2-gtsrb": Case(
        "MobileNetV2 at 96x96, GTSRB",
        "torchvision:mobilenet_v2",
        "mobilenet_v2_96.safetensors",
        "gtsrb",
        (),
        size=96,
    ),
    "mobilenet_v3_small-gtsrb": Case(
        "MobileNetV3 small at 64x64, GTSRB",
        "torchvision:mobilenet_v3_small",
        "gtsrb_mobilenet_v3_small_64.safetensors",
        "gtsrb",
        ("0.5x",),
        size=64,
        # Within 2 and 0.3 points of the original's 95.55%.
        goals={("0.5x", "none"): 93.55, ("0.5x", "3 epochs"): 95.25},
    ),
    "efficientnet_lite0-photographs": Case(
        "EfficientNet-Lite0 (1,000 classes), five of them at 224x224",
        "benchmarks.accuracy.efficientnet_lite:network",
        "efficientnet_lite0.safetensors",
        "photographs",
        ("0.6x",),
        tuple(PHOTOGRAPHED),
        size=224,
        goals={("0.6x", "none"): 95.0},
    ),
}  # fmt: skip


def data_sections(case: Case, folders: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """[model] and [data] of ``case``, whose images and weights are in ``folders``, and the augmentation."""
    data, mean, std, augment = DATASETS[case.data]
    return {
        "model": {"name": case.model, "checkpoint": folders.weights / case.weights, "mean": mean, "std": std},
        "data": {
            "name": data,
            "root": getattr(folders, case.data),
            "size": case.size,
            "validation": case.validation,
        },
        "finetune": {"augment": augment},
    }


TRAININGS: Mapping[str, Mapping[str, Any]] = {
    "none": {"epochs": 0},
    "100 steps": {"epochs": 1, "steps": 100},
    "3 epochs": {"epochs": 3},
    "10 epochs": {"epochs": 10},
}
PLAIN = {"reconstruct": False, "worth": "scatter"}
# Pruning method -> importance in torch-pruning.
PEERS = {
    "torch-pruning L1": "MagnitudeImportance",
    "torch-pruning Taylor": "GroupTaylorImportance",
    "torch-pruning group norm": "GroupMagnitudeImportance",
    "torch-pruning Hessian": "GroupHessianImportance",
    "torch-pruning FPGM": "FPGMImportance",
    "torch-pruning BN scale": "BNScaleImportance",
    "torch-pruning random": "RandomImportance",
}
FASTNAS = "Model Optimizer FastNAS"
# Pruning method -> settings of [prune].
PRUNINGS: Mapping[str, Mapping[str, Any]] = {
    "ours": {},
    "before": PLAIN,
    "paper": {**PLAIN, "allocation": "flops"},
    **dict.fromkeys((*PEERS, FASTNAS), PLAIN),
    "class-blind": {"criterion": "obs"},
    "channels by L1": {"criterion": "l1", "worth": "measured"},
    "worth by scatter": {"worth": "scatter"},
}
# Training recipe -> settings of [finetune].
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "gentle": {"recipe": "gentle"},
    "fast": {"recipe": "fast"},  # the default for networks that were not reconstructed
    "usual": {"recipe": "none", "learning_rate": 0.05, "warmup_epochs": 0.0},
    "usual rate": {"recipe": "gentle", "learning_rate": 0.05},
    "no average": {"recipe": "gentle", "ema": 0.0},
    "no distillation": {"recipe": "gentle", "distill": 0.0},
    "half distillation": {"recipe": "gentle", "distill": 0.5},
    "no feature maps": {"recipe": "gentle", "distill_features": 0.0},
}
# One thing changed at a time: (pruning method, training recipe). Without reconstruction, channels and widths are also
# chosen by scatter, because the default criteria need reconstruction.
ABLATIONS = (
    ("class-blind", "gentle"),
    ("channels by L1", "gentle"),
    ("worth by scatter", "gentle"),
    ("before", "gentle"),
    ("ours", "usual rate"),
    ("ours", "no average"),
    ("ours", "no distillation"),
    ("ours", "half distillation"),
    ("ours", "no feature maps"),
)
COMPARED_PEERS = ("torch-pruning L1", "torch-pruning Taylor", "torch-pruning group norm")
PEER_RECIPES = ("usual", "gentle")
COMPARED = (
    ("ours", "gentle"),
    ("before", "fast"),
    *((peer, recipe) for peer in COMPARED_PEERS for recipe in PEER_RECIPES),
)


@dataclass(frozen=True)
class Row:
    """One network, pruned and trained; ``case`` is a key of CASES, the others are names defined above."""

    case: str
    budget: str
    pruning: str
    recipe: str
    training: str
    seed: int = 0

    @property
    def pruned_name(self) -> str:
        """Name of the run folder in which the network was pruned."""
        return f"{self.case}-{self.budget}-{self.pruning}".replace(" ", "_")

    @property
    def name(self) -> str:
        """Key in the results and name of the run folder."""
        return f"{self.pruned_name}-{self.recipe}-{self.training}-{self.seed}".replace(" ", "_")


def rows_of(case: str, seeds: Sequence[int], *, ablation: bool = False) -> list[Row]:
    """All rows of a case: every method at every budget, or the ablation at the first budget; cheap trainings first.

    An untrained network is evaluated once, under the first recipe that it is trained with.
    """
    ways = ABLATIONS if ablation else COMPARED
    untrained = dict(reversed((*COMPARED, *ABLATIONS)))
    budgets = CASES[case].budgets[:1] if ablation else CASES[case].budgets
    return [
        Row(case, budget, pruning, recipe, training, seed)
        for training in TRAININGS
        for seed in (seeds[:1] if training == "none" else seeds)
        for budget in budgets
        for pruning, recipe in ways
        if training != "none" or recipe == untrained[pruning]
    ]
