"""Pictures of front.py: accuracy against measured latency, ours emphasised, for light and for dark pages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.accuracy.front_points import Point, Way
from benchmarks.accuracy.front_rows import OURS, WAYS

__all__ = ["picture"]

WIDTH, HEIGHT = 880, 470
LEFT, RIGHT, TOP, BOTTOM = 52, 640, 58, 416
LEGEND, LINE = RIGHT + 22, 24
WIDEST = 1.04
# By pruning method, in the order of WAYS: colours on a light and on a dark page, and the shape of a point.
LOOKS = (
    ("#0b62c4", "#5cabff", "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z"),
    ("#c2410c", "#ff9a5c", "M-.9 -.9H.9V.9H-.9Z"),
    ("#2f855a", "#5fd39a", "M0 -1.1L1.1 .9H-1.1Z"),
    ("#9a6700", "#e3b341", "M0 1.1L1.1 -.9H-1.1Z"),
    ("#8a3ffc", "#c297ff", "M0 -1.3L1.3 0L0 1.3L-1.3 0Z"),
    ("#b83280", "#ff8bc6", "M-1.1 0L0 -.9L1.1 0L.7 1H-.7Z"),
    ("#0e7c86", "#4fd1d9", "M-1.2 -.5H1.2V.5H-1.2Z"),
    ("#6b7a1e", "#c0cf5c", "M-.5 -1.2H.5V1.2H-.5Z"),
    ("#6b7280", "#a3adba", "M-1 -1L0 -.4L1 -1L.4 0L1 1L0 .4L-1 1L-.4 0Z"),
    ("#4d7c0f", "#a3e635", "M-1.1 -.9L0 -.3L1.1 -.9L0 1.2Z"),
)
STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}.soft{fill:#59636e}"
    ".back{fill:#fff}.grid{stroke:#e3e7eb}.goal{stroke:#59636e;stroke-dasharray:2 4}"
    ".title{font-size:15px;font-weight:600}.bold{font-weight:700}.way{fill:none;stroke-width:1.4}.bars{stroke-width:1;opacity:.55}.ours{stroke-width:3.2}"
    ".gentle{stroke-dasharray:5 4}"
)
DARK = ".back{fill:#0d1117}text{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#262c34}.goal{stroke:#9198a1}"
STEPS = (0.5, 1, 2, 5, 10, 20)
LINES = 8


@dataclass(frozen=True)
class Axis:
    """Accuracies in percent from the bottom to the top of the picture, with a line at each multiple of ``step``."""

    low: float
    high: float
    step: float

    @classmethod
    def around(cls, values: Sequence[float]) -> "Axis":
        """The axis with the finest step that shows all ``values`` with few lines."""
        for step in STEPS:
            low, high = math.floor(min(values) / step) * step, min(100.0, math.ceil(max(values) / step) * step)
            if high - low <= LINES * step:
                break
        return cls(low, max(high, low + step), step)

    def place(self, latency: float, accuracy: float) -> tuple[float, float]:
        """Where a point is drawn."""
        up = (accuracy - self.low) / (self.high - self.low)
        return LEFT + (RIGHT - LEFT) * latency / WIDEST, BOTTOM - (BOTTOM - TOP) * up


def picture(title: str, points: Mapping[Way, Sequence[Point]], original: Point) -> str:
    """The SVG of the ``points`` of one task and training."""
    shown = [*(point for found in points.values() for point in found), original]
    axis = Axis.around([end for point in shown for end in (point.accuracy.low, point.accuracy.high)])
    x, y = axis.place(1, original.accuracy.value)
    parts = [
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
        *_grid(axis),
        f'<path class="goal" d="M{LEFT} {y:.1f}H{x:.1f}"/><circle class="soft" cx="{x:.1f}" cy="{y:.1f}" r="5"/>',
    ]
    # Ours last, on top of the others.
    for way in sorted(points, key=lambda way: way[0] == OURS):
        parts += _series(way, points[way], axis)
    parts += _legend(list(points))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
    return f"{head}<title>{escape(title)}</title><style>{_style()}</style>{''.join(parts)}</svg>\n"


def _style() -> str:
    light, dark = (
        "".join(f".w{number}{{stroke:{look[way]}}}.m{number}{{fill:{look[way]}}}" for number, look in enumerate(LOOKS))
        for way in (0, 1)
    )
    return f"{STYLE}{light}@media(prefers-color-scheme:dark){{{DARK}{dark}}}"


def _grid(axis: Axis) -> Iterator[str]:
    for count in range(math.floor((axis.high - axis.low) / axis.step + 1e-9) + 1):
        value = axis.low + count * axis.step
        _, y = axis.place(0, value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>'
        yield f'<text class="soft" x="{LEFT - 8}" y="{y + 4.5:.1f}" text-anchor="end">{value:g}</text>'
    for share in (0, 0.2, 0.4, 0.6, 0.8, 1):
        x, _ = axis.place(share, axis.low)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{BOTTOM}"/>'
        yield f'<text class="soft" x="{x:.1f}" y="{BOTTOM + 19}" text-anchor="middle">{share:g}x</text>'
    yield f'<text class="soft" x="{LEFT}" y="{TOP - 12}">test accuracy, %</text>'
    words = "measured latency, share of the original’s"
    yield f'<text class="soft" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 41}" text-anchor="middle">{words}</text>'


def _series(way: Way, points: Sequence[Point], axis: Axis) -> Iterator[str]:
    number = list(WAYS).index(way[0])
    corners = [axis.place(point.latency.value, point.accuracy.value) for point in points]
    yield f'<path class="{_classes(way)}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in corners)}"/>'
    for point, (x, y) in zip(points, corners, strict=True):
        left, top = axis.place(point.latency.low, point.accuracy.high)
        right, bottom = axis.place(point.latency.high, point.accuracy.low)
        bars = f"M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {top:.1f}V{bottom:.1f}"
        yield f'<path class="bars w{number}" d="{bars}"/>{_marker(way, x, y)}'


def _marker(way: Way, x: float, y: float) -> str:
    number = list(WAYS).index(way[0])
    size = 5.6 if way[0] == OURS else 4
    move = f"translate({x:.1f} {y:.1f}) scale({size})"
    return f'<path class="m{number}" transform="{move}" d="{LOOKS[number][2]}"/>'


def _classes(way: Way) -> str:
    pruning, recipe = way
    return f"way w{list(WAYS).index(pruning)}" + (" ours" if pruning == OURS else " gentle" * (recipe == "gentle"))


def _legend(ways: Sequence[Way]) -> Iterator[str]:
    prunings = dict.fromkeys(pruning for pruning, _ in ways)
    y = TOP + 8
    for pruning in prunings:
        way, bold = (pruning, ""), ' class="bold"' if pruning == OURS else ""
        yield f'<path class="{_classes(way)}" d="M{LEGEND} {y}h28"/>{_marker(way, LEGEND + 14, y)}'
        yield f'<text{bold} x="{LEGEND + 38}" y="{y + 4.5}">{escape(pruning)}</text>'
        y += LINE
    yield f'<circle class="soft" cx="{LEGEND + 14}" cy="{y}" r="5"/>'
    yield f'<text x="{LEGEND + 38}" y="{y + 4.5}">original</text>'
    notes = ["bars: 95% intervals"]
    if any(recipe == "gentle" and pruning != OURS for pruning, recipe in ways):
        notes = ["solid: trained by their recipe", "dashed: by our gentle recipe", *notes]
    for count, note in enumerate(notes):
        yield f'<text class="soft" x="{LEGEND}" y="{y + 36 + 19 * count}">{note}</text>'
