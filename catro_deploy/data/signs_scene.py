"""Simulate a photograph of a sign: its pose in front of a background, the light, the lens and the sensor."""

from dataclasses import dataclass
from math import cos, radians, sin

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

__all__ = ["photograph"]

# Backgrounds of signs: sky, foliage, stone, asphalt, brick, bright cloud.
SURROUNDINGS = ((120, 160, 210), (70, 95, 50), (150, 145, 135), (85, 85, 90), (140, 90, 70), (215, 220, 225))

# 3x3 kernels of horizontal, vertical and diagonal motion blur.
SMEARS = (
    (0, 0, 0, 1, 1, 1, 0, 0, 0),
    (0, 1, 0, 0, 1, 0, 0, 1, 0),
    (1, 0, 0, 0, 1, 0, 0, 0, 1),
    (0, 0, 1, 0, 1, 0, 1, 0, 0),
)

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class _Ranges:
    """Bounds of the random parameters; angles in degrees, lengths as a share of half the image."""

    size: tuple[float, float] = (0.82, 1.0)
    offset: float = 0.08
    rotation: float = 8.0
    shear: float = 0.08
    squeeze: float = 0.12
    perspective: float = 0.10
    exposure: tuple[float, float] = (-1.6, 0.5)  # in stops: each halves or doubles the light
    contrast: tuple[float, float] = (0.6, 1.15)
    resolution: tuple[float, float] = (0.68, 1.0)
    noise: tuple[float, float] = (1.0, 5.0)


RANGES = _Ranges()


def photograph(
    face: Image.Image, size: tuple[int, int], supersampling: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Render a picture of ``face`` (RGBA): uint8 of shape (height, width, 3); ``rng`` draws all random parameters."""
    height, width = size
    canvas = (width * supersampling, height * supersampling)
    image = _background(canvas, rng)
    sign = face.transform(
        canvas, Image.Transform.PERSPECTIVE, _pose(canvas, face.width, rng), Image.Resampling.BILINEAR
    )
    image.paste(sign, (0, 0), sign)
    image = _through_lens(image.resize((width, height), Image.Resampling.BOX), rng)
    return _in_light(np.asarray(image, dtype=np.float32), rng)


def _background(canvas: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """A gradient between two surroundings, with clutter, out of focus."""
    corners = _surroundings(rng) + rng.normal(0, 14, (2, 2, 3))
    small = Image.fromarray(corners.clip(0, 255).astype(np.uint8)).resize((24, 24), Image.Resampling.BILINEAR)
    draw = ImageDraw.Draw(small)
    for _ in range(int(rng.integers(0, 7))):
        x, y, w, h = (rng.uniform(-8, 24), rng.uniform(-8, 24), rng.uniform(2, 18), rng.uniform(2, 18))
        shape = (draw.rectangle, draw.ellipse)[int(rng.integers(2))]
        colour = SURROUNDINGS[int(rng.integers(len(SURROUNDINGS)))]
        shape((x, y, x + w, y + h), fill=_near(colour, rng))
    if rng.random() < 0.5:  # the pole
        grey = int(rng.integers(60, 190))
        x = rng.uniform(9, 14)
        draw.rectangle((x, 12, x + rng.uniform(0.5, 2), 24), fill=(grey, grey, grey))
    return small.resize(canvas, Image.Resampling.BICUBIC)


def _surroundings(rng: np.random.Generator) -> NDArray[np.float64]:
    """Colours of the four corners, shape (2, 2, 3): one for the upper two, one for the lower two."""
    above, below = rng.integers(len(SURROUNDINGS), size=2)
    colours = np.array(SURROUNDINGS, dtype=np.float64)[[above, below]]
    return colours[:, None].repeat(2, axis=1)


def _near(colour: Colour, rng: np.random.Generator) -> Colour:
    red, green, blue = (np.array(colour) * rng.uniform(0.4, 1.2) + rng.normal(0, 10, 3)).clip(0, 255).astype(int)
    return int(red), int(green), int(blue)


def _pose(canvas: tuple[int, int], side: int, rng: np.random.Generator) -> tuple[float, ...]:
    """The eight coefficients of the perspective transform that maps a pixel of the canvas to one of the face."""
    width, height = canvas
    unit = min(width, height) / 2 * rng.uniform(*RANGES.size)
    centre = np.array([width, height]) / 2 * (1 + rng.uniform(-RANGES.offset, RANGES.offset, 2))
    angle = radians(float(np.clip(rng.normal(0, RANGES.rotation / 2), -RANGES.rotation, RANGES.rotation)))
    turn = np.array([[cos(angle), sin(angle)], [-sin(angle), cos(angle)]])
    slant = np.array([[1 + rng.uniform(0, RANGES.squeeze), rng.uniform(-RANGES.shear, RANGES.shear)], [0, 1]])
    linear = slant @ turn / unit
    to_face = np.eye(3)
    to_face[:2, :2], to_face[:2, 2] = linear, -linear @ centre
    to_face[2, :2] = rng.uniform(-RANGES.perspective, RANGES.perspective, 2) / unit
    to_face[2, 2] = 1 - to_face[2, :2] @ centre
    to_pixels = np.array([[side / 2, 0, side / 2], [0, side / 2, side / 2], [0, 0, 1]])
    coefficients = to_pixels @ to_face
    return tuple((coefficients / coefficients[2, 2]).ravel()[:8].tolist())


def _through_lens(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Reduce sharpness: a lower resolution, as of a distant sign, and sometimes motion blur, as of an unsteady hand."""
    width, height = image.size
    share = rng.uniform(*RANGES.resolution)
    image = image.resize((max(8, round(width * share)), max(8, round(height * share))), Image.Resampling.BOX)
    if share > 0.8 and rng.random() < 0.3:
        image = image.filter(ImageFilter.Kernel((3, 3), SMEARS[int(rng.integers(len(SMEARS)))], scale=3))
    return image.resize((width, height), Image.Resampling.BICUBIC)


def _in_light(pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Apply exposure, haze, tint, uneven light or a cast shadow, then the sensor's noise."""
    height, width = pixels.shape[:2]
    pixels = pixels.mean() + (pixels - pixels.mean()) * rng.uniform(*RANGES.contrast)
    pixels *= 2 ** rng.uniform(*RANGES.exposure) * rng.normal(1, 0.06, 3).astype(np.float32)
    across, down = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    angle = rng.uniform(0, 2 * np.pi)
    along = cos(angle) * across + sin(angle) * down
    if rng.random() < 0.15:
        shade = 1 - rng.uniform(0.2, 0.6) * (4 * (along - rng.uniform(-0.6, 0.6))).clip(0, 1)
    else:
        shade = 1 + rng.uniform(0, 0.3) * along
    pixels *= shade[..., None].astype(np.float32)
    pixels += rng.normal(0, rng.uniform(*RANGES.noise), pixels.shape)
    return pixels.clip(0, 255).astype(np.uint8)
