"""Small networks and separable images, and a Progress that records or interrupts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from catro_deploy.data.base import Dataset, MemorySplit, Split
from catro_deploy.progress import Progress, Silent
from catro_deploy.settings import DataSettings, FinetuneSettings, follow_recipe
from catro_deploy.training import History, TrainingJob, fit

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
STEPS = 5  # per epoch: 90 images in batches of 16


def small_network(classes: int = 3, seed: int = 0) -> nn.Module:
    """Convolutions, batch norm and dropout: every kind of layer that has state or draws random numbers."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def separable_split(count: int, seed: int = 0, size: int = 8) -> MemorySplit:
    """Three classes, each bright in its own colour, with noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    pixels = torch.randint(0, 90, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(count), labels] += 130
    return MemorySplit(pixels, labels.numpy().astype(np.int64))


def colours(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """The separable images as a user-defined dataset."""
    splits = (separable_split(count, seed, size[0]) for seed, count in enumerate((90, 21, 21)))
    return Dataset("colours", ("red", "green", "blue"), {}, *splits)


def options(**changes: object) -> FinetuneSettings:
    """Settings for quick tests on a CPU; the recipe is applied as for a network that was not reconstructed."""
    values: dict[str, object] = {
        "epochs": 4, "batch_size": 16, "learning_rate": 0.05, "augment": "signs", "compute": "cpu", "ema": 0.9,
    }  # fmt: skip
    return follow_recipe(FinetuneSettings.model_validate(values | changes), reconstructed=False)


class InterruptedTrainingError(Exception):
    """Raised by ``Recorder`` in place of a Ctrl-C."""


def interrupt() -> None:
    raise InterruptedTrainingError


class Recorder:
    """Records the progress; calls ``act`` when ``at_step`` steps of the bar named ``title`` are done."""

    def __init__(self, title: str = "test", at_step: int | None = None, act: Callable[[], object] = interrupt) -> None:
        self.title, self.at_step, self.act = title, at_step, act
        self.notes: list[str] = []
        self.texts: list[str] = []
        self.bars: dict[str, tuple[float, float]] = {}
        self.steps = 0.0

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator["_Bar"]:
        self.bars[title] = (total, done)
        yield _Bar(self, title == self.title)

    def note(self, text: str) -> None:
        self.notes.append(text)


class _Bar:
    def __init__(self, recorder: Recorder, counted: bool) -> None:
        self.recorder, self.counted = recorder, counted

    def advance(self, steps: float = 1) -> None:
        if self.counted:
            self.recorder.steps += steps
            if self.recorder.steps == self.recorder.at_step:
                self.recorder.act()

    def describe(self, text: str) -> None:
        self.recorder.texts.append(text)


def train(
    path: Path,
    model: nn.Module | None = None,
    progress: Progress | None = None,
    split: Split | None = None,
    validation: Split | None = None,
    teacher: nn.Module | None = None,
    distill: float = 0.0,
    **changes: object,
) -> tuple[nn.Module, History]:
    """Train on separable images; the state is written to the folder ``path``."""
    model = model or small_network()
    job = TrainingJob(
        model,
        split or separable_split(90),
        validation or separable_split(21, seed=1),
        options(**changes),
        MEAN,
        STD,
        "test",
        teacher,
        distill,
    )
    history = fit(job, path / "state.safetensors", progress or Silent())
    return model, history


def assert_same_bits(first: nn.Module, second: nn.Module) -> None:
    """Fail at the first tensor that differs."""
    own, other = first.state_dict(), second.state_dict()
    assert own.keys() == other.keys()
    for name in own:
        assert torch.equal(own[name], other[name]), name


def without_seconds(history: History) -> list[tuple[object, ...]]:
    """The values of each epoch that depend only on the arguments."""
    return [(e.epoch, e.loss, e.learning_rate, e.validation_accuracy) for e in history.epochs]
