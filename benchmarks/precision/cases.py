"""Trained networks, the settings of their quantisation, and the stages that quantise them."""

import argparse
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from catro_deploy.data.signs_drawing import CLASSES as SIGNS
from catro_deploy.errors import MissedError
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.progress import Silent
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings, load_settings
from catro_deploy.stages.export import export
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.prune import prune
from catro_deploy.stages.quantize import quantize

WHOLE = "100%flops"
GTSRB = {"mean": [0.3403, 0.3121, 0.3214], "std": [0.2724, 0.2608, 0.2669]}
CIFAR10 = {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2023, 0.1994, 0.2010]}


@dataclass(frozen=True)
class Case:
    """A trained network and its images; ``budgets`` are shares of its latency in float32."""

    title: str
    model: str
    checkpoint: str
    data: str
    size: int
    classes: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()


CASES = {
    "gtsrb-resnet20": Case(
        "ResNet-20, GTSRB speed limits", "cifar_resnet20", "gtsrb_resnet20.pth", "gtsrb", 32, ("speed_limits",),
        ("0.35x", "0.3x", "0.25x"),
    ),
    "cifar10-resnet20": Case(
        "ResNet-20, CIFAR-10", "cifar_resnet20", "cifar10_resnet20.pth", "cifar10", 32, budgets=("0.35x",)
    ),
    "cifar10-resnet56": Case(
        "ResNet-56, CIFAR-10", "cifar_resnet56", "cifar10_resnet56.pth", "cifar10", 32, budgets=("0.35x",)
    ),
    "gtsrb-mobilenet_v2": Case(
        "MobileNetV2 at 96x96, GTSRB speed limits", "torchvision:mobilenet_v2", "mobilenet_v2_96.safetensors", "gtsrb",
        96, ("speed_limits",), ("0.35x",),
    ),
}  # fmt: skip


def case_settings(
    case: Case, args: argparse.Namespace, *, prune: Mapping[str, Any], finetune: Mapping[str, Any]
) -> Settings:
    """Settings of ``case``, with the folders and epochs of ``args`` and some of [prune] and [finetune]."""
    signs = case.data == "gtsrb"
    return load_settings(
        None,
        {
            "model": {
                "name": case.model,
                "checkpoint": args.weights / case.checkpoint,
                **(GTSRB if signs else CIFAR10),
            },
            "data": {
                "name": "gtsrb" if signs else "imagefolder",
                "root": args.gtsrb if signs else args.cifar10,
                "size": case.size,
            },
            "prune": {"classes": list(case.classes), **prune},
            "finetune": {"epochs": args.epochs, "augment": "signs" if signs else "objects", **finetune},
            "quantize": {"precision": "int8"},
        },
    )


def random_settings(model: str, size: int, target: str, budget: str, run: RunFolder) -> Settings:
    """Settings of a network with random weights and placeholder images: only its latency matters."""
    checkpoint = run.path / "random.safetensors"
    if not checkpoint.is_file():
        torch.manual_seed(0)
        save_weights(build_model(model, len(SIGNS)), checkpoint)
    return load_settings(
        None,
        {
            "model": {"name": model, "checkpoint": checkpoint, "mean": [0.5] * 3, "std": [0.25] * 3},
            "data": {"name": "signs", "root": run.path, "size": size},
            "prune": {"target": target, "budget": budget, "samples_per_class": 8},
            "quantize": {"precision": "int8"},
        },
    )


def make_networks(settings: Settings, run: RunFolder, *, train: bool) -> None:
    """Prune, fine-tune if ``train``, export and quantise; what is finished in ``run`` is not repeated."""
    with run.lock():
        if not run.plan.is_file():
            prune(settings, run, Silent())
        if not run.weights.is_file():
            if train:
                finetune(settings, run, Silent())
            else:
                shutil.copyfile(run.pruned_weights, run.weights)
        if not run.quantize.is_file():
            export(settings, run, Silent())
            with suppress(MissedError):  # if int8 loses, that is a result
                quantize(settings, run, Silent())
