"""Training on batches of the caller's loader, which augments and normalises its images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import nn

from catro_deploy.data.loader import Batch, Loader, WantedClasses, open_loader, without_labels
from catro_deploy.errors import DataError
from catro_deploy.progress import Progress
from catro_deploy.records import History, Plan
from catro_deploy.settings import FinetuneSettings, OptimiserSettings, follow_recipe
from catro_deploy.settings.labels import require_distillation
from catro_deploy.training.batches import MIX, ORDER, seed_of
from catro_deploy.training.compute import Hardware, choose_hardware
from catro_deploy.training.features import features_of
from catro_deploy.training.loop import Training, enough_memory
from catro_deploy.training.objective import Objective
from catro_deploy.training.photos import mixed
from catro_deploy.training.trainable import require_trainable

__all__ = ["LoaderBatches", "LoaderJob", "fit_loader", "loader_accuracy"]


class LoaderBatches:
    """The images of the wanted classes, in batches of the size of the loader's first batch.

    ``images`` is the number of images in one pass, ``steps`` the number of batches in an epoch, ``size`` the number of
    images in each. Images that do not fill a batch are skipped; if a later pass yields fewer images of the wanted
    classes, another pass fills the epoch. If the first batch has no labels, the loader is not ``labelled``: all images
    are used, with the label UNKNOWN. Mixup and CutMix mix the images within a batch, if ``settings`` request them.
    """

    def __init__(
        self,
        loader: Loader,
        wanted: WantedClasses,
        image_shape: Sequence[int],
        hardware: Hardware,
        settings: OptimiserSettings,
    ) -> None:
        _require_passes(loader, "The loader")
        self._loader, self._wanted, self._image_shape = loader, wanted, image_shape
        self._hardware, self._settings = hardware, settings
        opened = open_loader(loader)
        self.labelled = opened.labelled
        self.images = sum(len(labels) for _, labels in self._given(opened.batches))
        if self.images < 2:
            raise DataError(
                f"There are fewer than 2 training images of the wanted classes: {self.images}.",
                "Let the loader give images of them.",
            )
        # Batch norm cannot learn from one image.
        self.size = min(max(len(opened.images), 2), self.images)
        self.steps = self.images // self.size

    def epoch(self, number: int, first: int = 0) -> Iterator[Batch]:
        """Images and labels on the device, see ``Epochs``; ``number`` decides only how images are mixed."""
        device, memory_format = self._hardware.device, self._hardware.memory_format
        classes = len(self._wanted.indices) if self.labelled else 0
        for step, (images, labels) in enumerate(islice(self._filled(), self.steps)):
            seed = seed_of(self._settings.seed, number, ORDER, MIX, step)
            images, labels = mixed(images, labels, classes, self._settings, seed)
            yield images.to(device=device, memory_format=memory_format), labels.to(device)

    def _given(self, loader: Loader) -> Iterator[Batch]:
        if self.labelled:
            return self._wanted.batches(loader, self._image_shape)
        return without_labels(loader, self._image_shape)

    def _filled(self) -> Iterator[Batch]:
        """An endless stream of batches of the full size."""
        pending: list[Batch] = []
        given = True
        while given:
            given = False
            for batch in self._given(self._loader):
                given = True
                images, labels = (torch.cat(parts) for parts in zip(*pending, batch, strict=True))
                whole = len(labels) // self.size * self.size
                if whole:  # torch.split turns an empty tensor into one empty piece
                    parts = (torch.split(tensor[:whole], self.size) for tensor in (images, labels))
                    yield from zip(*parts, strict=True)
                pending = [(images[whole:], labels[whole:])]
        raise DataError(
            "On a second pass the loader gives no images of the wanted classes.",
            "Give a torch DataLoader, or a list of batches.",
        )


def _require_passes(loader: Loader, name: str) -> None:
    """Check that ``loader`` can be iterated more than once; ``name`` is what the message calls it.

    Raises:
        DataError: it is an iterator, such as a generator.
    """
    if isinstance(loader, Iterator):
        raise DataError(
            f"{name} is a {type(loader).__name__}, which can be iterated only once; training needs several passes.",
            "Give a torch DataLoader, or a list of batches.",
        )


@dataclass(frozen=True)
class LoaderJob:
    """A training on the batches of loaders.

    Attributes:
        model: is trained in place.
        train: yields training images. If it yields images alone, the model learns only from the teacher's outputs.
        validation: yields images for the accuracy after each epoch; None: no accuracy.
        wanted: the classes to use; images of others are skipped.
        plan: what was removed from the original; both loaders yield images of its ``input_shape``, of all classes.
        settings: the recipe is followed; the size of batches and the augmentation of single images are ignored, since
            the loader determines them.
        teacher: the original, which returns logits over the wanted classes; a copy is moved to the training device.
    """

    model: nn.Module
    train: Loader
    validation: Loader | None
    wanted: WantedClasses
    plan: Plan
    settings: FinetuneSettings
    teacher: nn.Module | None = None

    def accuracy(self, network: nn.Module, hardware: Hardware) -> float | None:
        """Accuracy of ``network`` on the validation images; None if there are none.

        Raises:
            DataError: they have no labels, or none is of a wanted class.
        """
        if self.validation is None:
            return None
        opened = open_loader(self.validation)
        if not opened.labelled:
            raise DataError(
                "The validation loader gives images without labels, so there is no accuracy to measure.",
                "Leave it out. PrunedModel.agreement compares the network with the original on such images.",
            )
        return loader_accuracy(network, self.wanted.batches(opened.batches, self.plan.input_shape), hardware)


def fit_loader(job: LoaderJob, progress: Progress) -> History:
    """Train the model of ``job`` and leave it on the CPU, in eval mode, with the final (or averaged) weights.

    Before the first epoch both loaders are iterated once, to count the images and for the initial accuracy.

    Raises:
        SettingsError: no GPU is available although one is requested; or ``train`` yields images alone, and the loss
            needs labels.
        DataError: a loader's batches are invalid, or have fewer than 2 images of the wanted classes.
        ModelError: see ``require_trainable``.
        NumericsError: the loss or a weight is not finite.
        FaultError: the GPU's memory is too small.
    """
    settings, plan = job.settings, job.plan
    if job.validation is not None:
        _require_passes(job.validation, "The validation loader")
    if settings.epochs:
        require_trainable(job.model, plan.input_shape)
    hardware = choose_hardware(job.model, settings.compute, settings.amp, plan.input_shape)
    with enough_memory('Let the loader give smaller batches, or train with compute="cpu".'):
        batches = LoaderBatches(job.train, job.wanted, plan.input_shape, hardware, settings)
        if not batches.labelled:
            require_distillation(settings, settings.epochs)
        settings = settings.model_copy(update={"batch_size": batches.size})
        settings = follow_recipe(settings, plan.reconstructed, batches.labelled)
        share, temperature = settings.distill or 0.0, settings.temperature
        weight = settings.distill_features or 0.0
        features = features_of(job.teacher, job.model, plan, weight) if job.teacher is not None else None
        objective = Objective(hardware, settings.label_smoothing, job.teacher, share, temperature, features)
        validate = partial(job.accuracy, hardware=hardware)
        training = Training(job.model, batches, objective, validate, settings, hardware)
        training.start(None, "", progress)
        training.run(None, progress, "fine-tuning")
        return training.finish(batches.images)


def loader_accuracy(model: nn.Module, batches: Iterator[Batch], hardware: Hardware) -> float:
    """Share of images whose largest logit is the label's; the model is on the hardware's device and stays in its mode.

    Raises:
        DataError: there are no images.
    """
    right = total = 0
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for images, labels in batches:
                predictions = model(images.to(hardware.device)).argmax(dim=1).cpu()
                right, total = right + int((predictions == labels).sum()), total + len(labels)
    finally:
        model.train(was_training)
    if not total:
        raise DataError(
            "The validation loader gives no images of the wanted classes.", "Leave it out, or let it give some."
        )
    return right / total
