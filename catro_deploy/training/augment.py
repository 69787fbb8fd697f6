"""Augmentation of whole batches on their device: resampling, brightness and colour, normalisation.

The input is a batch of uint8 pixels, the output normalised float32. Each image of the batch has its own parameters,
drawn from the given ``torch.Generator``: the same generator state gives the same batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F

from catro_deploy.data.pixels import constant, scaled, standardise

__all__ = ["KINDS", "WHOLE", "Jitter", "Share", "augment"]


@dataclass(frozen=True)
class Jitter:
    """The range of each parameter, in both directions from the identity.

    Attributes:
        rotation_degrees: rotation about the centre.
        scale: 0.1 scales the content by a factor between 1/1.1 and 1.1.
        shear_degrees: largest angle of vertical lines.
        shift: share of the height and of the width.
        whole_pixels: shifts are by whole pixels, without blur from resampling.
        mirror: half of the images are mirrored left to right.
        brightness: share of the full range that is added.
        contrast: share by which the distance from the image's mean is stretched.
        saturation: share by which the distance from grey is stretched; only for images with three channels.
        erase: share of the images in which a rectangle is filled with the mean colour of the training images.
    """

    rotation_degrees: float = 0.0
    scale: float = 0.0
    shear_degrees: float = 0.0
    shift: float = 0.0
    whole_pixels: bool = False
    mirror: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    erase: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether pixels move other than by mirroring."""
        return any((self.rotation_degrees, self.scale, self.shear_degrees, self.shift))


@dataclass(frozen=True)
class Share:
    """Part ``place`` (0, 1, ...) of a batch that is split into ``of`` equal parts."""

    place: int = 0
    of: int = 1

    def cut(self, values: torch.Tensor) -> torch.Tensor:
        """This part of ``values`` along their last axis."""
        return values.chunk(self.of, dim=-1)[self.place]


WHOLE = Share()


# On a CPU, images are augmented in small chunks, so that intermediate results stay in its cache.
CACHED_BYTES = 2**21
# Weights of red, green and blue (ITU-R BT.601).
LUMA = (0.299, 0.587, 0.114)
# Smallest and largest share of an image that is erased, and the largest aspect ratio of the erased rectangle.
ERASED = (0.02, 0.33)
NARROWEST = 3.3

# A mirrored "turn left" is a "turn right": signs must never be mirrored.
KINDS = {
    "none": Jitter(),
    "rigid": Jitter(shift=0.125, whole_pixels=True),
    "signs": Jitter(rotation_degrees=10, scale=0.15, shear_degrees=6, shift=0.08, brightness=0.2, contrast=0.4),
    "objects": Jitter(shift=0.125, whole_pixels=True, mirror=True, brightness=0.1, contrast=0.2),
    # For random crops.
    "photos": Jitter(mirror=True, brightness=0.2, contrast=0.4, saturation=0.4),
}


def augment(
    pixels: torch.Tensor,
    jitter: Jitter,
    generator: torch.Generator,
    mean: Sequence[float],
    std: Sequence[float],
    share: Share = WHOLE,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> torch.Tensor:
    """Augment uint8 ``pixels`` (n, c, h, w) within ``jitter`` and normalise them to float32.

    They are the ``share`` of a batch, and are augmented as they would be in the whole batch. The image is reflected
    beyond its border. Values stay within 0..1 before normalisation. The result is in ``memory_format``.
    """
    drawn = _Drawn.of(jitter, pixels, generator, share)
    each_bytes = torch.float32.itemsize * math.prod(pixels.shape[1:])
    at_once = max(1, CACHED_BYTES // each_bytes) if pixels.device.type == "cpu" else len(pixels)
    if len(pixels) <= at_once:
        return _varied(pixels, jitter, drawn, mean, std).contiguous(memory_format=memory_format)
    images = torch.empty(pixels.shape, memory_format=memory_format)
    for start in range(0, len(pixels), at_once):
        part = slice(start, start + at_once)
        images[part] = _varied(pixels[part], jitter, drawn.at(part), mean, std)
    return images


@dataclass(frozen=True)
class _Drawn:
    """Random numbers in -1..1, one per parameter and image, on the images' device: each tensor is (parameters, n)."""

    move: torch.Tensor
    mirror: torch.Tensor
    light: torch.Tensor
    colour: torch.Tensor
    erase: torch.Tensor

    @classmethod
    def of(cls, jitter: Jitter, pixels: torch.Tensor, generator: torch.Generator, share: Share) -> "_Drawn":
        """The parameters that ``jitter`` needs, for ``share``."""

        def draw(columns: int, wanted: bool) -> torch.Tensor:
            if not wanted:
                return torch.empty((0, len(pixels)), device=pixels.device)
            drawn = torch.rand((columns, len(pixels) * share.of), generator=generator, device=generator.device)
            return share.cut(drawn).to(pixels.device) * 2 - 1

        return cls(
            move=draw(6, jitter.moves),
            mirror=draw(1, jitter.mirror and not jitter.moves),
            light=draw(2, bool(jitter.brightness or jitter.contrast)),
            colour=draw(1, bool(jitter.saturation) and pixels.shape[1] == len(LUMA)),
            erase=draw(5, bool(jitter.erase)),
        )

    def at(self, part: slice) -> "_Drawn":
        """The parameters of some of the images."""
        return _Drawn(*(getattr(self, field.name)[:, part] for field in fields(self)))


def _varied(
    pixels: torch.Tensor, jitter: Jitter, drawn: _Drawn, mean: Sequence[float], std: Sequence[float]
) -> torch.Tensor:
    images = scaled(pixels)
    if len(drawn.move):
        images = _move(images, jitter, drawn.move)
    elif len(drawn.mirror):
        images = torch.where(_columns(drawn.mirror)[0] < 0, images.flip(-1), images)
    if len(drawn.light):
        _light_(images, jitter, drawn.light)
    if len(drawn.colour):
        _colour_(images, jitter, drawn.colour)
    images = standardise(images, mean, std)
    return _erase(images, jitter, drawn.erase) if len(drawn.erase) else images


def _columns(drawn: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A tensor (n, 1, 1, 1) for each parameter."""
    return drawn[..., None, None, None].unbind()


def _move(images: torch.Tensor, jitter: Jitter, drawn: torch.Tensor) -> torch.Tensor:
    """Resample once, through the affine map from output to input coordinates."""
    height, width = images.shape[2:]
    turn, grow, lean, right, down, side = drawn
    angle = turn * math.radians(jitter.rotation_degrees)
    shear = torch.tan(lean * math.radians(jitter.shear_degrees))
    zoom = torch.exp(-grow * math.log1p(jitter.scale))
    face = torch.where(side < 0, -1.0, 1.0) if jitter.mirror else torch.ones_like(side)
    right, down = (_offset(move, jitter, size) for move, size in ((right, width), (down, height)))
    cosine, sine = torch.cos(angle) * zoom, torch.sin(angle) * zoom
    # Coordinates are -1..1 across the image: if it is not square, a rotation depends on its aspect ratio.
    aspect = height / width
    across = torch.stack([face * cosine, face * (shear * cosine - sine) * aspect, right], dim=1)
    downward = torch.stack([sine / aspect, shear * sine + cosine, down], dim=1)
    grid = F.affine_grid(torch.stack([across, downward], dim=1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _offset(move: torch.Tensor, jitter: Jitter, size: int) -> torch.Tensor:
    """A shift in the units of the grid, in which the whole side has length 2."""
    pixels = move * jitter.shift * size
    return 2 * (pixels.round() if jitter.whole_pixels else pixels) / size


def _light_(images: torch.Tensor, jitter: Jitter, drawn: torch.Tensor) -> None:
    bright, contrast = _columns(drawn)
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    images.sub_(middle).mul_(torch.exp(contrast * math.log1p(jitter.contrast)))
    images.add_(middle).add_(bright * jitter.brightness).clamp_(0, 1)


def _colour_(images: torch.Tensor, jitter: Jitter, drawn: torch.Tensor) -> None:
    (vivid,) = _columns(drawn)
    grey = (images * constant(LUMA, images.dtype, images.device).view(-1, 1, 1)).sum(1, keepdim=True)
    images.sub_(grey).mul_(torch.exp(vivid * math.log1p(jitter.saturation))).add_(grey).clamp_(0, 1)


def _erase(images: torch.Tensor, jitter: Jitter, drawn: torch.Tensor) -> torch.Tensor:
    """Random erasing of standardised images (Zhong et al., 2020, "Random Erasing Data Augmentation")."""
    rows, columns = images.shape[2:]
    whether, size, shape, down, right = ((column + 1) / 2 for column in _columns(drawn))
    area = ERASED[0] + size * (ERASED[1] - ERASED[0])
    aspect = torch.exp((2 * shape - 1) * math.log(NARROWEST))
    height, width = (
        (rows * (area * aspect).sqrt()).clamp(max=rows),
        (columns * (area / aspect).sqrt()).clamp(max=columns),
    )
    y = torch.arange(rows, device=images.device).view(1, 1, -1, 1) - down * (rows - height)
    x = torch.arange(columns, device=images.device).view(1, 1, 1, -1) - right * (columns - width)
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width) & (whether < jitter.erase)
    return images.masked_fill(inside, 0.0)
