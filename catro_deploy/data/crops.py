"""Random crops straight from image files, as torchvision's RandomResizedCrop draws them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from PIL import Image

from catro_deploy.data.decoding import draft
from catro_deploy.data.form import ImageForm

__all__ = ["RandomCrop", "crop_box"]


@dataclass(frozen=True)
class RandomCrop:
    """A crop of at least the share ``least_area`` of the image, resized to the size of ``form``; ``seed`` decides.

    The crop is cut from the whole image, not from what ``form`` would leave of it. A JPEG is decoded at 1/2, 1/4 or
    1/8 of its size where the crop is then still no smaller than what is made of it.
    """

    form: ImageForm
    least_area: float
    seed: int

    @property
    def channels(self) -> int:
        """Those of the form."""
        return self.form.channels

    def read(self, file: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
        """The crop of the image in ``file``."""
        height, width = self.form.size
        left, top, right, bottom = crop_box(file.size, self.form.size, self.least_area, self.seed)
        most = (file.width * width / (right - left), file.height * height / (bottom - top))
        across, down = draft(file, most)
        image = convert(file)
        box = (left / across, top / down, min(right / across, image.width), min(bottom / down, image.height))
        return image.resize((width, height), self.form.resampling, box)


def crop_box(image: tuple[int, int], size: tuple[int, int], least_area: float, seed: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a crop of an ``image`` of (width, height), as torchvision draws it after ``seed``.

    ``size`` (height, width) only decides the crop's range of aspect ratios: 3/4 to 4/3 of its own.
    """
    from torchvision.transforms.v2 import RandomResizedCrop  # seconds to import

    width, height = image
    own = size[1] / size[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        top, left, rows, columns = RandomResizedCrop.get_params(
            torch.empty((1, height, width), device="meta"), [least_area, 1.0], [3 / 4 * own, 4 / 3 * own]
        )
    return left, top, left + columns, top + rows
