"""Fine-tuning compared with a plain loop: DataLoader with workers, torchvision transforms per image, eager float32.

    python -m benchmarks.training.throughput --data FOLDER --checkpoint gtsrb_resnet20.pth [--epochs 3] [--rounds 3]

One network, ResNet-20 pruned for GTSRB's speed limits to a tenth of its multiply-accumulates, is fine-tuned from the
same weights by both, with the same optimiser, schedule, epochs and kind of augmentation, interleaved. The plain loop
keeps its images decoded in memory, so that disk access is not measured. Seconds of an epoch include the validation
after it; compilation, which happens once before the first epoch, is reported separately. Prints a table; writes
benchmarks/results/throughput.json.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from benchmarks.common import environment, table, write_result
from catro_deploy import networks
from catro_deploy.data.base import Split, Subset
from catro_deploy.progress import Silent
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import FinetuneSettings, Settings, load_settings
from catro_deploy.stages.logits import dataset_of
from catro_deploy.stages.prune import prune
from catro_deploy.training import TrainingJob, accuracy, fit, predict
from catro_deploy.training.schedule import learning_rate_factor

WORKERS = 2
# Of both trainings.
BATCH_SIZE, LEARNING_RATE = 128, 0.1


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="trainings of each, with different seeds")
    return parser.parse_args()


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings of both trainings."""
    normalisation = {"mean": [0.3403, 0.3121, 0.3214], "std": [0.2724, 0.2608, 0.2669]}
    sections = {
        "model": {"name": "cifar_resnet20", "checkpoint": args.checkpoint, **normalisation},
        "data": {"name": "gtsrb", "root": args.data},
        "prune": {"classes": ["speed_limits"], "budget": "9.25%flops", "max_width": 0.5},
        "finetune": {
            "recipe": "none",
            "epochs": args.epochs,
            "batch_size": BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
            "compile": True,
        },
    }
    return load_settings(None, sections)


class Decoded(TorchDataset[tuple[torch.Tensor, int]]):
    """PIL images, passed through ``transform``."""

    def __init__(self, split: Split, transform: Callable[[Any], torch.Tensor]) -> None:
        pixels = split.images(np.arange(len(split.labels)))
        self._images = [v2.functional.to_pil_image(one) for one in pixels]
        self._labels, self._transform = split.labels, transform

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return self._transform(self._images[place]), int(self._labels[place])


def plain_loader(train: Split, plan: Plan) -> DataLoader[tuple[torch.Tensor, int]]:
    """A loader with the augmentation of the kind ``signs``."""
    transform = v2.Compose(
        [
            v2.RandomAffine(10, translate=(0.08, 0.08), scale=(1 / 1.15, 1.15), shear=6),
            v2.ColorJitter(brightness=0.2, contrast=0.4),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(plan.mean), list(plan.std)),
        ]
    )
    return DataLoader(
        Decoded(train, transform), BATCH_SIZE, shuffle=True, drop_last=True, num_workers=WORKERS,
        persistent_workers=True,
    )  # fmt: skip


def train_plainly(
    model: nn.Module, train: Split, validation: Split, plan: Plan, settings: FinetuneSettings
) -> tuple[list[float], float]:
    """Seconds of each epoch, and the final validation accuracy."""
    loader = plain_loader(train, plan)
    optimizer = torch.optim.SGD(
        model.parameters(),
        LEARNING_RATE,
        settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
    )
    total = settings.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor("cosine", min(step, total - 1), total, len(loader))
    )
    seconds, reached = [], 0.0
    for _ in range(settings.epochs):
        began = time.monotonic()
        model.train()
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        logits = predict(model, validation, plan.mean, plan.std, BATCH_SIZE)
        reached = accuracy(logits, validation.labels)
        seconds.append(time.monotonic() - began)
    return seconds, reached


def train_ours(
    model: nn.Module, train: Split, validation: Split, plan: Plan, settings: FinetuneSettings
) -> tuple[list[float], float, float]:
    """Seconds of each epoch, the final validation accuracy, and the seconds outside of epochs."""
    with tempfile.TemporaryDirectory() as folder:
        state, began = Path(folder, "state.safetensors"), time.monotonic()
        history = fit(TrainingJob(model, train, validation, settings, plan.mean, plan.std, "training"), state, Silent())
        whole = time.monotonic() - began
    return [e.seconds for e in history.epochs], history.validation_accuracy or 0.0, whole - history.seconds


def main() -> None:
    """Train both, interleaved; print, write."""
    args = arguments()
    settings = settings_of(args)
    turns: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        prune(settings, run, Silent())
        plan = load_plan(run)
        data = dataset_of(settings, plan)
        train, validation = (Subset(split, plan.class_indices) for split in (data.train, data.validation))
        for seed in range(args.rounds):
            own = settings.finetune.model_copy(update={"seed": seed})
            torch.manual_seed(seed)
            plain_s, plain_reached = train_plainly(networks.load(run, weights="pruned"), train, validation, plan, own)
            ours_s, ours_reached, outside_s = train_ours(
                networks.load(run, weights="pruned"), train, validation, plan, own
            )
            turns.append(
                {
                    "plain_epoch_s": plain_s,
                    "epoch_s": ours_s,
                    "before_s": outside_s,
                    "plain_accuracy": plain_reached,
                    "accuracy": ours_reached,
                    "ratio": statistics.median(plain_s) / statistics.median(ours_s),
                }
            )
    images = len(train.labels)
    result = {"images": images, "epochs": args.epochs, "turns": turns, "environment": environment()}
    write_result("throughput.json", result)
    heads = ("round", "plain, images/s", "images/s", "ratio", "plain, validation", "validation", "before epoch 1, s")
    rows = [
        [
            number, f"{images / statistics.median(turn['plain_epoch_s']):.0f}",
            f"{images / statistics.median(turn['epoch_s']):.0f}", f"{turn['ratio']:.2f}x",
            f"{turn['plain_accuracy']:.2%}", f"{turn['accuracy']:.2%}", f"{turn['before_s']:.0f}",
        ]
        for number, turn in enumerate(turns, 1)
    ]  # fmt: skip
    print(table(heads, rows))


if __name__ == "__main__":
    main()
