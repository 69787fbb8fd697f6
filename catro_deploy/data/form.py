"""The form of a network's input images: their size, and how files of other sizes are resized."""

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from catro_deploy.settings import DataSettings

__all__ = ["ImageForm", "image_form"]


@dataclass(frozen=True)
class ImageForm:
    """Images of ``size`` (height, width) and 3 (RGB) or 1 (grey) ``channels``.

    Images of other sizes are resized to ``size`` or, with ``resize``, to this shorter side or height and width, and
    then centre-cropped.
    """

    size: tuple[int, int]
    channels: int
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"

    @property
    def resampling(self) -> Image.Resampling:
        """Pillow's constant for ``interpolation``."""
        return Image.Resampling[self.interpolation.upper()]

    def read(self, file: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
        """The whole image in ``file``, decoded by ``convert``, at this size."""
        return self.applied(convert(file))

    def applied(self, image: Image.Image) -> Image.Image:
        """``image`` at this size, as torchvision's ``resize`` and ``center_crop`` do it, always with antialiasing."""
        height, width = self.size
        if self.resize is None:
            return image if image.size == (width, height) else image.resize((width, height), self.resampling)
        resized = image.resize(self._resized(*image.size), self.resampling)
        left, top = (_begin(have, want) for have, want in zip(resized.size, (width, height), strict=True))
        return resized.crop((left, top, left + width, top + height))  # black beyond the image's border

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """Width and height before the crop."""
        if isinstance(self.resize, tuple):
            return self.resize[1], self.resize[0]
        assert self.resize is not None
        shorter, longer = sorted((width, height))
        other = int(self.resize * longer / shorter)
        return (self.resize, other) if width <= height else (other, self.resize)


def _begin(have: int, want: int) -> int:
    return round((have - want) / 2) if have >= want else -((want - have) // 2)


def image_form(settings: DataSettings, size: tuple[int, int], channels: int) -> ImageForm:
    """The form of images of ``size`` (height, width), resized as ``settings`` specify."""
    return ImageForm(size, channels, settings.resize, settings.interpolation)
