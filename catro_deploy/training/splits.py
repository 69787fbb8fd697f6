"""Training on a dataset's splits: images are augmented on the device, and an interrupted training resumes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from catro_deploy.data.base import Part, Split, is_unlabelled
from catro_deploy.data.files import as_files
from catro_deploy.errors import DataError
from catro_deploy.files import text_hash
from catro_deploy.progress import Progress
from catro_deploy.records import History
from catro_deploy.settings import OptimiserSettings, batch_size
from catro_deploy.training.batches import SplitBatches
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.evaluate import correct, predict
from catro_deploy.training.events import epochs_to_tensorboard
from catro_deploy.training.features import Features
from catro_deploy.training.loop import Training, enough_memory
from catro_deploy.training.objective import Objective
from catro_deploy.training.pixels import decode_once
from catro_deploy.training.state import tensors_hash
from catro_deploy.training.trainable import require_trainable
from catro_deploy.training.world import World, parting, the_world

__all__ = ["NOT_IN_FINGERPRINT", "TrainingJob", "fit", "train_together"]

# These settings do not change the training, only where and how fast it runs.
NOT_IN_FINGERPRINT = {"compute", "amp", "compile", "recipe", "tensorboard", "checkpoint_minutes"}


@dataclass(frozen=True)
class TrainingJob:
    """A training, in the form that is shared by all processes.

    Attributes:
        model: is trained in place.
        train: images to train on, augmented on the device.
        validation: images for the accuracy after each epoch; may be empty, or without labels: no accuracy then.
        settings: if they set no learning rate or moving average, it follows from the number of steps (``gentle``).
        mean: one value per channel, for pixels in 0..1; subtracted from the images.
        std: likewise; images are divided by it.
        title: for the progress display.
        teacher: returns logits over the same classes.
        distill: the teacher's share of the loss.
        temperature: of both networks' outputs in the distillation loss.
        features: the teacher's feature maps that the model learns, too.
    """

    model: nn.Module
    train: Split
    validation: Split
    settings: OptimiserSettings
    mean: Sequence[float]
    std: Sequence[float]
    title: str
    teacher: nn.Module | None = None
    distill: float = 0.0
    temperature: float = 4.0
    features: Features | None = None

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines the training's result."""
        content = {
            "settings": self.settings.model_dump(mode="json", exclude=NOT_IN_FINGERPRINT),
            "model": tensors_hash(self.model.state_dict()),
            "teacher": tensors_hash(self.teacher.state_dict()) if self.teacher is not None else None,
            "labels": tensors_hash({"labels": torch.from_numpy(self.train.labels)}),
            "distill": self.distill,
            "temperature": self.temperature,
            "mean": list(self.mean),
            "std": list(self.std),
        }
        return text_hash(json.dumps(content, sort_keys=True))


def fit(job: TrainingJob, state_path: Path, progress: Progress, events: Path | None = None) -> History:
    """Train the model of ``job`` in place and leave it on the CPU, in eval mode, with the final (or averaged) weights.

    After every epoch, and every ``checkpoint_minutes`` within one, the whole state is written to ``state_path``; the
    caller deletes it when the weights are saved. If it exists at the start and belongs to the same job, training
    continues from it. ``events`` is the folder of event files, if settings request them. Under torchrun, all of its
    processes train together.

    Raises:
        SettingsError: a GPU is requested, but none is available; or event files, but TensorBoard is not installed.
        DataError: fewer than 2 training images, or one that cannot be decoded.
        ModelError: see ``require_trainable``.
        CheckpointError: ``state_path`` is damaged.
        NumericsError: the loss or a weight is not finite; the state of the last good epoch is kept.
        StorageError: the state could not be written.
        FaultError: the GPU's memory is too small, or another process of the training has exited.
    """
    world = the_world()
    with parting(world):
        return train_together(world.share(job), state_path, progress, world, events)


def train_together(
    job: TrainingJob, state_path: Path | None, progress: Progress, world: World, events: Path | None = None
) -> History:
    """Train in each process of ``world``; only the first has a ``state_path``."""
    settings, mean, std = job.settings, job.mean, job.std
    count = len(job.train.labels)
    if count < 2:
        raise DataError(f"There are fewer than 2 training images: {count}.", "Choose other classes, or add images.")
    _, channels, height, width = job.train.images([0]).shape
    if settings.epochs:
        require_trainable(job.model, (channels, height, width))
    hardware = choose_hardware(job.model, settings.compute, settings.amp, (channels, height, width))
    fingerprint = job.fingerprint
    batch = settings.batch_size or batch_size(count)
    with enough_memory(f'Lower batch_size (now {batch}) or set compute = "cpu".'):
        pixels = job.train
        # Crops need the parts of images that ``decode_once`` cuts off.
        crops = settings.augment == "photos" and as_files(pixels) is not None
        if settings.epochs and not crops:
            pixels = decode_once(pixels, hardware.device, progress, "reading training images")
        batches = SplitBatches(pixels, settings, mean, std, hardware, world)
        own = decode_once(_part(job.validation, world), hardware.device, progress, "reading validation images")
        objective = Objective(
            hardware, settings.label_smoothing, job.teacher, job.distill, job.temperature, job.features
        )

        def validate(network: nn.Module) -> float | None:
            labels = job.validation.labels
            if not len(labels) or is_unlabelled(labels):
                return None
            logits = predict(network, own, mean, std, batch, hardware.device)
            return world.total(correct(logits, own.labels)) / len(labels)

        training = Training(job.model, batches, objective, validate, settings, hardware, world)
        training.start(state_path, fingerprint, progress)
        with epochs_to_tensorboard(events if settings.tensorboard else None, len(training.state.epochs)) as record:
            training.run(state_path, progress, job.title, record)
        return training.finish(count)


def _part(split: Split, world: World) -> Split:
    """The part of the validation images for this process of ``world``."""
    if world.size == 1:
        return split
    indices = np.arange(world.rank, len(split.labels), world.size)
    return Part(split, indices, split.labels[indices])
