"""SVG that fits any width: horizontal positions are percentages of the plot, vertical positions and text sizes pixels.

A plot's labels are outside the SVG's own box; padding of the page makes room for them, so that phones get narrower
margins without smaller text.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from catro_deploy.report.wording import minus, shorten

__all__ = [
    "Axis",
    "circle",
    "curve",
    "figure",
    "foremost",
    "grid",
    "legend",
    "line",
    "name",
    "rect",
    "row",
    "scales",
    "small",
    "strip",
    "text",
    "value",
    "zoomed",
]

_STEPS = (1, 2, 2.5, 5, 10)
MOST_ROWS = 50
"""Rows that a reader still takes in."""

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Axis:
    """A linear scale from ``low`` to ``high`` with round ticks."""

    low: float
    high: float
    step: float

    @property
    def ticks(self) -> list[float]:
        """Multiples of ``step`` from ``low`` to ``high``."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [round(index * self.step, 12) for index in range(first, last + 1)]

    def place(self, number: float) -> float:
        """The position of ``number``, in percent of the plot's width, clipped to 0..100."""
        return min(100.0, max(0.0, (number - self.low) / (self.high - self.low) * 100))

    def format(self, number: float) -> str:
        """The label of a tick, with the number of decimals that the step needs."""
        decimals = next((d for d in range(8) if abs(round(self.step, d) - self.step) < 1e-9), 8)
        return f"{number:,.{decimals}f}"


def foremost(entries: Sequence[Entry], key: Callable[[Entry], float]) -> Sequence[Entry]:
    """All ``entries``; if they are too many for the rows of a chart, those with the smallest ``key``, in its order."""
    return entries if len(entries) <= MOST_ROWS else sorted(entries, key=key)[:MOST_ROWS]


def zoomed(low: float, high: float, ticks: int = 4, *, floor: float = -math.inf, ceiling: float = math.inf) -> Axis:
    """An axis around ``low..high`` that starts and ends at round numbers, inside ``floor..ceiling``."""
    if high - low <= 1e-9 * abs(high):
        low = max(floor, high - (abs(high) * 0.02 or 1.0))
    rough = (high - low) / ticks or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in _STEPS if s * power >= rough * (1 - 1e-9))
    start, end = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    start, end = max(floor, start), min(ceiling, end)
    return Axis(start, end if end > start else start + step, step)


def text(x: float, y: float | str, content: str, style: str = "", *, dx: float = 0, dy: float = 0) -> str:
    """Text at ``x`` percent plus ``dx`` pixels, ``y`` pixels (or ``100%``) plus ``dy``; ``style``: CSS classes."""
    return f'<text x="{x:.2f}%" y="{y}" dx="{dx:g}" dy="{dy:g}" class="{style}">{escape(content)}</text>'


def row(number: int, parts: Iterable[str]) -> str:
    """Parts drawn around y = 0, which the style sheet moves to the middle of row ``number``."""
    return f'<g class="row" style="--row:{number}">{"".join(parts)}</g>'


def rect(x: float, y: float, width: float, height: float, style: str, *, hint: str = "") -> str:
    """A rectangle; ``x``, ``width`` in percent, ``y``, ``height`` in pixels; ``hint`` is shown on hover."""
    place = f'x="{x:.3f}%" y="{y:.2f}" width="{width:.3f}%" height="{height:.2f}"'
    return f'<rect {place} class="{style}">{_hint(hint)}</rect>'


def line(x1: float, y1: float | str, x2: float, y2: float | str, style: str) -> str:
    """A line; ``x`` in percent, ``y`` in pixels or ``100%``."""
    return f'<line x1="{x1:.2f}%" y1="{y1}" x2="{x2:.2f}%" y2="{y2}" class="{style}"/>'


def circle(x: float, y: float, radius: float, style: str, *, hint: str = "") -> str:
    """A dot at ``x`` percent, ``y`` pixels; ``hint`` is shown on hover."""
    return f'<circle cx="{x:.2f}%" cy="{y:.2f}" r="{radius:g}" class="{style}">{_hint(hint)}</circle>'


def _hint(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


def grid(axis: Axis, unit: str = "") -> list[str]:
    """Vertical lines at the ticks, with their labels below."""
    parts = []
    for tick in axis.ticks:
        place = axis.place(tick)
        parts.append(line(place, 0, place, "100%", "grid"))
        parts.append(text(place, "100%", axis.format(tick) + unit, "tick", dy=18))
    return parts


def scales(
    across: Axis, up: Axis, top: float, height: float, heads: tuple[str, str], units: tuple[str, str]
) -> list[str]:
    """The ticks of a plot of two quantities, ``height`` pixels high from ``top``, with lines at those of ``up``.

    ``heads`` and ``units`` are the titles and units of ``across`` and ``up``, in this order.
    """
    parts = [text(0, top - 10, heads[1], "head")]
    for tick in up.ticks:
        y = top + height * (1 - up.place(tick) / 100)
        parts += [line(0, y, 100, y, "grid"), text(0, y + 4, minus(up.format(tick)) + units[1], "tick end", dx=-8)]
    for tick in across.ticks:
        side = "end" if tick == across.high else ""
        parts.append(text(across.place(tick), top + height + 18, across.format(tick) + units[0], f"tick {side}"))
    return [*parts, text(100, top + height + 36, heads[0], "tick end")]


def name(words: str, keep: str) -> str:
    """A row's label, in the left margin or, on a narrow page, above the row; ``keep`` as in ``shorten``."""
    return text(0, 4, shorten(words, 34, keep=keep), "name", dx=-14)


def value(content: str, *, faint: bool) -> str:
    """A row's figure, in the right margin."""
    return text(100, 4, content, "faint" if faint else "", dx=14)


def legend(*entries: tuple[str, str]) -> str:
    """The legend, as HTML: pairs of a swatch's CSS classes and words."""
    keys = (f'<span class="key"><span class="swatch {style}"></span>{words}</span>' for style, words in entries)
    return f'<p class="legend">{"".join(keys)}</p>'


def curve(points: Sequence[tuple[float, float]], top: float, height: float, style: str) -> str:
    """A line through ``points``: percentages of the plot's width and, from ``top`` downwards, of ``height`` pixels."""
    joined = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    return (
        f'<svg y="{top:g}" width="100%" height="{height:g}" viewBox="0 0 100 100" preserveAspectRatio="none">'
        f'<polyline points="{joined}" class="{style}" vector-effect="non-scaling-stroke"/></svg>'
    )


def strip(runs: Sequence[tuple[int, int]], length: int, height: float, style: str) -> str:
    """Pieces of a strip of ``length`` cells around y = 0, each from its first to its last cell, counted from 0."""
    drawn = "".join(f"M{first} 0h{last - first + 1}v1h-{last - first + 1}z" for first, last in runs)
    size = f'y="{-height / 2:g}" width="100%" height="{height:g}"'
    return f'<svg {size} viewBox="0 0 {length} 1" preserveAspectRatio="none"><path d="{drawn}" class="{style}"/></svg>'


def figure(
    title: str, description: str, parts: Iterable[str], size: str, style: str, caption: str, legend: str = ""
) -> str:
    """A chart with a title and a description for screen readers, and a caption.

    ``size`` is inline CSS: a height, or ``--rows`` for a plot whose row spacing is set by the style sheet. ``caption``
    and ``legend`` are HTML.
    """
    name = escape(title.lower().replace(" ", "-"))
    return (
        f'<figure>{legend}<div class="plot {style}"><svg style="{size}" role="img"'
        f' aria-labelledby="{name}-title {name}-text"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(description)}</desc>{"".join(parts)}</svg></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def small(title: str, note: str, description: str, parts: Iterable[str], height: float) -> str:
    """One of several similar charts side by side, with its own ``title`` and ``note``."""
    return (
        f'<div class="small"><p class="head">{escape(title)}</p><p class="note">{escape(note)}</p>'
        f'<div class="plot tiny"><svg style="height:{height:g}px" role="img" aria-label="{escape(description)}">'
        f"{''.join(parts)}</svg></div></div>"
    )
