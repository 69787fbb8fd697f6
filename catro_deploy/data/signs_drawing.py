"""The faces of sixteen traffic signs, drawn from shapes and the font that is included in Pillow."""

from collections.abc import Callable, Sequence
from functools import partial
from math import cos, pi, sin

from PIL import Image, ImageDraw, ImageFont

__all__ = ["CLASSES", "GROUPS", "draw_face"]

WHITE, BLACK = (246, 246, 242), (22, 22, 24)
RED, BLUE, YELLOW = (196, 22, 32), (16, 84, 168), (250, 190, 16)

SMOOTHING = 2  # faces are drawn this much larger and scaled down, for smooth edges

Colour = tuple[int, int, int]
Point = tuple[float, float]


class _Pen:
    """Draws in coordinates of -1..1, x to the right and y down, whatever the number of pixels."""

    def __init__(self, side: int) -> None:
        self.image = Image.new("RGBA", (side, side))
        self._draw = ImageDraw.Draw(self.image)
        self._half = side / 2

    def _pixels(self, points: Sequence[Point]) -> list[Point]:
        return [((x + 1) * self._half, (y + 1) * self._half) for x, y in points]

    def disc(self, radius: float, colour: Colour) -> None:
        self._draw.ellipse(self._pixels([(-radius, -radius), (radius, radius)]), fill=colour)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        self._draw.polygon(self._pixels(points), fill=colour)

    def text(self, text: str, width: float, height: float, weight: float, colour: Colour) -> None:
        """Draw ``text`` in the centre, stretched to ``width`` x ``height``, thickened by ``weight``."""
        font = ImageFont.load_default(size=2 * self._half * height)
        stroke = round(weight * self._half * height)
        box = font.getbbox(text, stroke_width=stroke)
        mask = Image.new("L", (round(box[2] - box[0]), round(box[3] - box[1])))
        ImageDraw.Draw(mask).text((-box[0], -box[1]), text, fill=255, font=font, stroke_width=stroke)
        mask = mask.resize((round(width * self._half), round(height * self._half)), Image.Resampling.BILINEAR)
        corner = (round(self._half - mask.width / 2), round(self._half - mask.height / 2))
        self.image.paste(colour, corner, mask)


def _regular(corners: int, radius: float, start: float) -> list[Point]:
    """Corners of a regular polygon, the first at ``start`` turns clockwise from the right."""
    angles = [2 * pi * (start + corner / corners) for corner in range(corners)]
    return [(radius * cos(angle), radius * sin(angle)) for angle in angles]


def _turned(points: Sequence[Point], turns: float) -> list[Point]:
    c, s = cos(2 * pi * turns), sin(2 * pi * turns)
    return [(c * x - s * y, s * x + c * y) for x, y in points]


def _mirrored(points: Sequence[Point]) -> list[Point]:
    return [(-x, y) for x, y in points]


STRAIGHT_ARROW = [
    (-0.14, 0.68), (0.14, 0.68), (0.14, -0.14), (0.46, -0.06), (0.0, -0.70), (-0.46, -0.06), (-0.14, -0.14)
]  # fmt: skip
BENT_ARROW = [
    (-0.46, 0.62), (-0.18, 0.62), (-0.18, 0.06), (0.14, 0.06), (0.04, 0.38), (0.66, -0.10), (0.04, -0.56),
    (0.14, -0.24), (-0.34, -0.24), (-0.46, -0.12),
]  # fmt: skip


def _speed_limit(pen: _Pen, limit: int) -> None:
    pen.disc(1.0, WHITE)
    pen.disc(0.97, RED)
    pen.disc(0.74, WHITE)
    pen.text(str(limit), 1.04 if limit < 100 else 1.22, 0.80, 0.05, BLACK)


def _stop(pen: _Pen) -> None:
    pen.polygon(_regular(8, 1.0, 1 / 16), WHITE)
    pen.polygon(_regular(8, 0.92, 1 / 16), RED)
    pen.text("STOP", 1.36, 0.60, 0.04, WHITE)


def _yield(pen: _Pen) -> None:
    down = [(x, y - 0.22) for x, y in _regular(3, 1.12, 1 / 4)]
    inner = [(x, y - 0.22) for x, y in _regular(3, 0.64, 1 / 4)]
    pen.polygon(down, RED)
    pen.polygon(inner, WHITE)


def _no_entry(pen: _Pen) -> None:
    pen.disc(1.0, WHITE)
    pen.disc(0.96, RED)
    pen.polygon([(-0.70, -0.18), (0.70, -0.18), (0.70, 0.18), (-0.70, 0.18)], WHITE)


def _priority_road(pen: _Pen) -> None:
    pen.polygon(_regular(4, 1.0, 0), BLACK)
    pen.polygon(_regular(4, 0.96, 0), WHITE)
    pen.polygon(_regular(4, 0.66, 0), YELLOW)


def _arrow(pen: _Pen, points: Sequence[Point]) -> None:
    pen.disc(1.0, WHITE)
    pen.disc(0.95, BLUE)
    pen.polygon(points, WHITE)


LIMITS = (20, 30, 50, 60, 70, 80, 100, 120)

FACES: dict[str, Callable[[_Pen], None]] = {
    **{f"speed_limit_{limit}": partial(_speed_limit, limit=limit) for limit in LIMITS},
    "stop": _stop,
    "yield": _yield,
    "no_entry": _no_entry,
    "priority_road": _priority_road,
    "turn_left": partial(_arrow, points=_mirrored(BENT_ARROW)),
    "turn_right": partial(_arrow, points=BENT_ARROW),
    "ahead_only": partial(_arrow, points=STRAIGHT_ARROW),
    "keep_right": partial(_arrow, points=_turned(STRAIGHT_ARROW, 3 / 8)),
}

CLASSES = tuple(FACES)

GROUPS = {
    "speed_limits": tuple(i for i, name in enumerate(CLASSES) if name.startswith("speed_limit_")),
    "direction_signs": tuple(CLASSES.index(name) for name in ("turn_left", "turn_right", "ahead_only", "keep_right")),
}


def draw_face(name: str, side: int) -> Image.Image:
    """The sign ``name`` of CLASSES, upright on a transparent background: RGBA, ``side`` x ``side`` pixels."""
    pen = _Pen(side * SMOOTHING)
    FACES[name](pen)
    return pen.image.reduce(SMOOTHING)
