"""The images that decisions before fine-tuning are based on: validation images of the wanted classes."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from catro_deploy.assessment.basis import Basis, basis_of
from catro_deploy.data.base import Split, Subset
from catro_deploy.errors import DataError
from catro_deploy.progress import Progress
from catro_deploy.pruning.shared import Shared
from catro_deploy.records import FirstLook
from catro_deploy.settings import Settings
from catro_deploy.stages.first_look import first_look
from catro_deploy.stages.original import open_original
from catro_deploy.training.compute import choose_device
from catro_deploy.training.evaluate import predict

__all__ = ["HeldOut", "held_out_of", "logits_of"]

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class HeldOut:
    """The validation images of the wanted classes, the original's logits for them, and the basis of decisions.

    ``train`` are the training images of these classes, ``look`` is the first look at the original, ``shared`` holds
    what prunings have measured of it.
    """

    train: Split
    images: Split
    logits: Floats
    basis: Basis
    look: FirstLook | None = None
    shared: Shared = field(default_factory=Shared)


def held_out_of(settings: Settings, progress: Progress) -> HeldOut:
    """The validation images of the wanted classes, and the unpruned network's logits for them.

    Raises:
        DataError: there are none.
    """
    original = open_original(settings)
    train, images = (Subset(split, original.wanted) for split in (original.dataset.train, original.dataset.validation))
    if not len(images.labels):
        raise DataError(
            "There are no validation images of these classes, so no search is possible.",
            "Hold some out ([data] validation), or name a budget and do not search: --budget 0.5x --no-search",
        )
    look = first_look(original, settings, progress)
    logits = logits_of(original.model, images, settings)
    return HeldOut(train, images, logits, basis_of(logits, images.labels, settings.verify.max_drop), look)


def logits_of(network: nn.Module, images: Split, settings: Settings) -> Floats:
    """The network's logits for ``images``, shape (n, classes)."""
    mean, std, device = settings.model.mean, settings.model.std, choose_device(settings.finetune.compute)
    return predict(network, images, mean, std, settings.verify.batch_size, device).numpy()
