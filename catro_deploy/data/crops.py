"""Random crops directly from image files, as torchvision's RandomResizedCrop draws them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from PIL import Image

from catro_deploy.data.decoding import draft
from catro_deploy.data.form import ImageForm

__all__ = ["RandomCrop", "crop_box"]

RATIOS = (3 / 4, 4 / 3)
ATTEMPTS = 10


@dataclass(frozen=True)
class RandomCrop:
    """A random crop, drawn by ``seed``, of at least the share ``least_area`` of the image, resized to ``form.size``.

    The crop is taken from the whole image, not from the part that ``form`` would keep. A JPEG is decoded at 1/2, 1/4 or
    1/8 of its size if the crop is then still at least as large as the result.
    """

    form: ImageForm
    least_area: float
    seed: int

    @property
    def channels(self) -> int:
        """The channels of the form."""
        return self.form.channels

    def read(self, file: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
        """The crop of the image in ``file``."""
        height, width = self.form.size
        left, top, right, bottom = crop_box(file.size, self.form.size, self.least_area, self.seed)
        most = (file.width * width / (right - left), file.height * height / (bottom - top))
        across, down = draft(file, most)
        image = convert(file)
        if across == down == 1:  # identical to torchvision's, pixel by pixel
            return image.crop((left, top, right, bottom)).resize((width, height), self.form.resampling)
        box = (left / across, top / down, min(right / across, image.width), min(bottom / down, image.height))
        return image.resize((width, height), self.form.resampling, box)


def crop_box(image: tuple[int, int], size: tuple[int, int], least_area: float, seed: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a crop of an ``image`` (width, height), as torchvision draws it from ``seed``.

    ``size`` (height, width) only determines the range of the crop's aspect ratio: 3/4 to 4/3 of its own. torchvision's
    code is not called because it draws from the global generator, which threads must not share.
    """
    width, height = image
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> float:
        return torch.empty(1).uniform_(low, high, generator=generator).item()

    narrow, wide = (ratio * size[1] / size[0] for ratio in RATIOS)
    bounds = torch.log(torch.tensor((narrow, wide)))
    for _ in range(ATTEMPTS):
        area = width * height * uniform(least_area, 1.0)
        ratio = torch.exp(torch.empty(1).uniform_(bounds[0], bounds[1], generator=generator)).item()  # type: ignore[arg-type]
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top = int(torch.randint(0, height - rows + 1, (1,), generator=generator))
            left = int(torch.randint(0, width - columns + 1, (1,), generator=generator))
            return left, top, left + columns, top + rows
    columns = min(width, round(height * wide)) if width / height > narrow else width
    rows = min(height, round(width / narrow)) if width / height < wide else height
    left, top = (width - columns) // 2, (height - rows) // 2
    return left, top, left + columns, top + rows
