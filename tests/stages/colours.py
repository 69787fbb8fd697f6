"""A run folder with three classes (red, green and blue images) and networks whose outputs can be worked out by hand."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from catro_deploy.data import Dataset, MemorySplit
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.records import GroupPlan, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import save_plan
from catro_deploy.settings import DataSettings, Settings

CLASSES = ("red", "green", "blue")
PER_CLASS = 10


class ColourNet(nn.Module):
    """With ``mix`` as the identity, logits are the means of the colour channels; ``bn`` only changes their scale."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, classes, 1, bias=False)
        self.bn = nn.BatchNorm2d(classes)
        self.fc = nn.Linear(classes, classes)
        nn.init.dirac_(self.mix.weight)
        nn.init.eye_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        nn.init.constant_(self.bn.running_var, 4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.bn(self.mix(x)).mean((2, 3)))


def dataset(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Ten images of each colour in every split, with some noise."""
    labels = np.repeat(np.arange(3), PER_CLASS)
    pixels = torch.randint(0, 60, (3 * PER_CLASS, 3, *size), generator=torch.Generator().manual_seed(0))
    pixels[np.arange(3 * PER_CLASS), labels] += 120
    split = MemorySplit(pixels.to(torch.uint8), labels)
    return Dataset("colours", CLASSES, {}, split, split, split)


def settings(**sections: dict) -> Settings:
    return Settings.model_validate({"data": {"name": "tests.stages.colours:dataset"}} | sections)


def make_run(folder: Path, pruned: nn.Module | None = None, original: nn.Module | None = None) -> RunFolder:
    """A run folder after fine-tuning; nothing is really cut, so ``pruned`` may be any ColourNet."""
    run = RunFolder(folder)
    plan = Plan(
        model="tests.stages.colours:ColourNet",
        model_classes=3,
        input_shape=(3, 8, 8),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        classes=CLASSES,
        class_indices=(0, 1, 2),
        head="fc",
        target="x86-cpu",
        budget="50%flops",
        criterion="catro",
        allocation="greedy",
        groups=(GroupPlan("fc", 3, (0, 1, 2), ("fc",), fixed="the outputs"),),
        keeps={},
        original_macs=2,
        pruned_macs=1,
        original_params=2,
        pruned_params=1,
    )
    save_plan(plan, run.plan)
    save_weights(original or ColourNet(3), run.original_weights)
    save_weights(pruned or ColourNet(3), run.weights)
    return run


def blind_to(colour: int) -> ColourNet:
    """A network that never predicts ``colour``."""
    network = ColourNet(3)
    with torch.no_grad():
        network.fc.bias[colour] = -1000
    return network
