"""A classifier of three kinds of 16x16 images, for which a whole run takes seconds, and factories that fail."""

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner, Result

from catro_deploy.cli.main import app
from catro_deploy.data import Dataset, MemorySplit
from catro_deploy.files import write_text
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.records import Bench, Plan, Quantize, ReconstructionPlan, Verify
from catro_deploy.report.latency import budget_used
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load, load_if_there
from catro_deploy.settings import DataSettings

RECONSTRUCTION = ReconstructionPlan(1.0, 0.5, {"stem": 0.9}, {})
CLASSES = ("across", "down", "even")
SIZE = 16
CHECKOUT = Path(__file__).parents[1]
COUNTS = {"train": 20, "test": 8}


class TinyNet(nn.Module):
    """Three convolutions; an addition couples the second and the third."""

    def __init__(self, classes: int, channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 12, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 16, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 16, 3, 1, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        x = torch.relu(x + self.bn3(self.conv3(x)))
        return self.fc(x.mean((2, 3)))


class Blocks(nn.Module):
    """A stem and two residual blocks, large enough that their latency stands out from the overhead of a call."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(32)
        for block in ("one", "two"):
            self.add_module(f"{block}_in", nn.Conv2d(32, 48, 3, padding=1, bias=False))
            self.add_module(f"{block}_bn", nn.BatchNorm2d(48))
            self.add_module(f"{block}_out", nn.Conv2d(48, 32, 3, padding=1))
        self.fc = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        x = torch.relu(x + self.one_out(torch.relu(self.one_bn(self.one_in(x)))))
        x = torch.relu(x + self.two_out(torch.relu(self.two_bn(self.two_in(x)))))
        return self.fc(x.mean((2, 3)))


class NanNet(TinyNet):
    """A network with finite weights whose feature maps are not finite."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.log(x - 1e6))


def network(classes: int) -> TinyNet:
    return TinyNet(classes)


def grey_network(classes: int) -> TinyNet:
    return TinyNet(classes, channels=1)


def blocks(classes: int) -> Blocks:
    return Blocks(classes)


class AuxiliaryNet(TinyNet):
    """In training, it returns its logits twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:  # type: ignore[override]
        logits = super().forward(x)
        return (logits, logits) if self.training else logits


def auxiliary_network(classes: int) -> AuxiliaryNet:
    return AuxiliaryNet(classes)


def nan_network(classes: int) -> NanNet:
    return NanNet(classes)


def four_classes(classes: int) -> nn.Module:
    return TinyNet(4)


def raising_network(classes: int) -> nn.Module:
    raise RuntimeError("no weights today")


def no_network(classes: int) -> str:
    return "a network"


def draw(label: int, count: int, seed: int) -> np.ndarray:
    """Noisy images with stripes ``across`` or ``down``, or without stripes: uint8 (count, 16, 16, 3)."""
    generator = np.random.default_rng([seed, label])
    stripes = np.where(np.arange(SIZE) % 4 < 2, 60, -60)
    pattern = (stripes[:, None], stripes[None, :], np.zeros((1, 1)))[label]
    noise = generator.normal(0, 25, (count, SIZE, SIZE, 3))
    return (128 + pattern[..., None] + noise).clip(0, 255).astype(np.uint8)


def dataset(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    splits = [_split(24, 0), _split(8, 1), _split(8, 2)]
    return Dataset("tiny", CLASSES, {"stripes": (0, 1)}, *splits)


def unlabelled(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """The same images, without labels."""
    known = dataset(settings, size, channels)
    splits = [MemorySplit(s.pixels, np.full(len(s.labels), -1)) for s in (known.train, known.validation, known.test)]
    return Dataset("tiny", (), {}, *splits)


def one_untested(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """The same images, without test images of the second class."""
    known = dataset(settings, size, channels)
    left = np.flatnonzero(known.test.labels != 1)
    return replace(known, test=MemorySplit(known.test.images(left), known.test.labels[left]))


def identical_images(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Every class repeats one image."""
    labels = np.repeat(np.arange(3), 8)
    pixels = torch.zeros(24, 3, *size, dtype=torch.uint8) + torch.from_numpy(labels).view(-1, 1, 1, 1) * 80
    split = MemorySplit(pixels.to(torch.uint8), labels)
    return Dataset("identical", CLASSES, {}, split, split, split)


def raising_dataset(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    raise RuntimeError("the archive is offline")


def no_dataset(settings: DataSettings, size: tuple[int, int], channels: int) -> dict[str, int]:
    return {"images": 3}


def _split(per_class: int, seed: int) -> MemorySplit:
    pixels = np.concatenate([draw(label, per_class, seed) for label in range(3)]).transpose(0, 3, 1, 2)
    return MemorySplit(torch.from_numpy(pixels.copy()), np.repeat(np.arange(3), per_class))


def write_images(root: Path) -> None:
    """Write the images as an ImageFolder: 20 per class for training and 8 for testing."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        for label, name in enumerate(CLASSES):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number, pixels in enumerate(draw(label, count, seed)):
                Image.fromarray(pixels).save(folder / f"{number:02d}.png")


def write_work_folder(folder: Path, epochs: int = 2) -> None:
    """Write a working folder as a user has it: images, a checkpoint, catro.toml and short measuring protocols."""
    write_images(folder / "data")
    torch.manual_seed(0)
    save_weights(TinyNet(3), folder / "tiny.safetensors")
    write_text(folder / "moment.toml", PROTOCOL)
    write_text(folder / "few.toml", PROFILE_PROTOCOL)
    write_text(folder / "catro.toml", SETTINGS.format(epochs=epochs))


def exit_code_of(run: Path, *stages: str) -> int:
    """The exit code that follows from the records of ``run`` for ``stages`` (none: all): 3 if a requirement was missed.

    The speed of a network this small depends on the machine; that the exit code agrees with the measurement does not.
    """
    folder = RunFolder(run)
    missed = {
        "quantize": lambda: _misses_precision(load_if_there(Quantize, folder)),
        "verify": lambda: not load(Verify, folder).passed,
        "bench": lambda: _is_slow(load(Bench, folder), load(Plan, folder)),
    }
    return 3 if any(missed[stage]() for stage in stages or missed if stage in missed) else 0


def _misses_precision(decided: Quantize | None) -> bool:
    return decided is not None and decided.asked not in ("auto", decided.shipped)


def _is_slow(bench: Bench, plan: Plan) -> bool:
    used = budget_used(plan, bench)
    return bench.speedup.ci95[1] < 1 or (used.unit != "flops" and used.outcome == "missed")


def command(*arguments: str, cwd: Path | None = None) -> Result:
    """Run a command line in this process, on one thread: waiting for a second one only slows networks this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with contextlib.chdir(cwd or Path.cwd()):
            return CliRunner().invoke(app, arguments, prog_name="catro-deploy")
    finally:
        torch.set_num_threads(threads)


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a command line in a separate process on one thread; Ctrl-C in this process does not reach it."""
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen(
        [sys.executable, "-m", "catro_deploy.cli.main", *arguments],
        text=True,
        env=environment,
        start_new_session=True,
        **streams,
    )


PROTOCOL = """\
warmup_s = 0.0
seconds = 0.05
min_samples = 10
limit_s = 5.0
block = 1
bootstrap_resamples = 20
seed = 0
"""

PROFILE_PROTOCOL = """\
candidates = 3
squares = 1
limit_s = 30.0
rounds = 2
block_ms = 0.5
min_runs = 2
max_runs = 4
together = 8
disagreement = 0.5
held_out = 4
seed = 0
"""

SETTINGS = """\
[model]
name = "tests.tiny:network"
checkpoint = "tiny.safetensors"
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]

[data]
name = "imagefolder"
root = "data"
size = 16

[prune]
budget = "50%flops"
samples_per_class = 16
compute = "cpu"

[finetune]
recipe = "none"
epochs = {epochs}
batch_size = 16
learning_rate = 0.05
augment = "none"
compute = "cpu"

[bench]
protocol = "./moment.toml"

[profile]
protocol = "./few.toml"
"""
