"""Random transforms of torchvision.transforms.v2 for each image or each batch: crops, RandAugment, mixup and CutMix.

Each draw has its own seed, so that it does not depend on the process or on where an epoch began.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from catro_deploy.data.base import Split
from catro_deploy.data.crops import RandomCrop, crop_box
from catro_deploy.data.files import FileSplit
from catro_deploy.settings import OptimiserSettings

__all__ = ["PerImage", "mixed", "per_image"]


@dataclass(frozen=True)
class PerImage:
    """Random transforms of each image of a training set.

    Attributes:
        least_area: of a random crop, as a share of the image; 0: no crop.
        magnitude: of RandAugment; 0: no RandAugment.
    """

    least_area: float
    magnitude: int

    @property
    def active(self) -> bool:
        """Whether any random transform is used."""
        return bool(self.least_area or self.magnitude)

    def read(self, split: Split, indices: NDArray[np.int64], seed: Callable[[int], int]) -> torch.Tensor:
        """The images of ``split`` at ``indices``, uint8 (n, c, h, w), each augmented by the ``seed`` of its index.

        Crops are cut from the image files or, if there are none, from the images in memory, on any device.
        """
        seeds = [seed(int(index)) for index in indices]
        if isinstance(split, FileSplit) and self.least_area:
            pixels = split.framed(indices, [RandomCrop(split.form, self.least_area, one) for one in seeds])
        else:
            pixels = split.images(indices)
            if self.least_area:
                pixels = torch.stack([self._cropped(image, one) for image, one in zip(pixels, seeds, strict=True)])
        if self.magnitude:
            pixels = torch.stack([self._varied(image, one) for image, one in zip(pixels, seeds, strict=True)])
        return pixels

    def _cropped(self, image: torch.Tensor, seed: int) -> torch.Tensor:
        from torchvision.transforms.v2 import functional

        height, width = image.shape[1:]
        left, top, right, bottom = crop_box((width, height), (height, width), self.least_area, seed)
        found: torch.Tensor = functional.resized_crop(
            image, top, left, bottom - top, right - left, [height, width], antialias=True
        )
        return found

    def _varied(self, image: torch.Tensor, seed: int) -> torch.Tensor:
        from torchvision.transforms.v2 import RandAugment

        found: torch.Tensor = _seeded(RandAugment(magnitude=self.magnitude), seed ^ 1, image)
        return found


def per_image(settings: OptimiserSettings) -> PerImage:
    """The transforms that ``settings`` request."""
    return PerImage(settings.crop_scale if settings.augment == "photos" else 0.0, settings.randaugment)


def mixed(
    images: torch.Tensor, labels: torch.Tensor, classes: int, settings: OptimiserSettings, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mix a batch, ``images`` (n, c, h, w) and ``labels`` (n,), with itself; labels become shares (n, classes).

    With mixup or CutMix, as ``settings`` request; if both, with one of them, drawn by ``seed``; if neither, the batch
    stays as it is. Unknown labels stay.
    """
    if not settings.mixup and not settings.cutmix:
        return images, labels
    from torchvision.transforms.v2 import CutMix, MixUp, RandomChoice  # takes half a second

    kinds = ((MixUp, settings.mixup), (CutMix, settings.cutmix))
    known = bool(classes)
    count = classes if known else 1
    ways = [kind(alpha=alpha, num_classes=count) for kind, alpha in kinds if alpha]
    found, shares = _seeded(RandomChoice(ways), seed, images, labels if known else torch.zeros_like(labels))
    return found, shares if known else labels


def _seeded(transform: Callable[..., Any], seed: int, *arguments: torch.Tensor) -> Any:  # noqa: ANN401
    """Call ``transform`` with ``seed`` as the seed; the global generator is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transform(*arguments)
