"""Charts of how latency determined the widths: rounds of the closed loop, staircases, time by layer."""

import math
from collections.abc import Sequence

from catro_deploy.records.budgets import BudgetUsed
from catro_deploy.records.figures import LatencyFigures, LayerTime, StairFigures
from catro_deploy.report import svg
from catro_deploy.report.verdict import budget_words, prediction_word
from catro_deploy.report.wording import shorten, three_digits
from catro_deploy.units import counted

__all__ = ["layers_chart", "rounds_chart", "stairs_charts"]

OPEN = 6
"""The number of staircases that are shown at once; the others are collapsed."""
ALIKE = 0.2
"""Of staircases that differ by at most this share at every width, only one is shown at once."""
BARS = 32
"""The number of layers that are drawn; those with less time are only in the table."""
HEIGHT = 96.0


def rounds_chart(latency: LatencyFigures, used: BudgetUsed) -> str:
    """A row for each round: a ring for the prediction, a dot with its interval for the measurement."""
    rows = [
        (f"Round {number}{', taken' if one.taken else ''}", one.predicted, one.measured, one.ci95)
        for number, one in enumerate(latency.rounds, 1)
    ]
    if used.used is not None and used.predicted is not None and used.ci95 is not None:
        rows.append(("Final bench", used.predicted, used.used, used.ci95))
    numbers = [n for _, predicted, measured, ci95 in rows for n in (predicted, measured, *ci95)]
    axis = svg.zoomed(min(*numbers, used.asked), max(*numbers, used.asked), 4, floor=0)
    limit = axis.place(used.asked)
    parts = [*svg.grid(axis, "x" if used.unit == "x" else ""), svg.line(limit, 0, limit, "100%", "limit")]
    for number, (name, predicted, measured, ci95) in enumerate(rows):
        low, high = map(axis.place, ci95)
        words = budget_words(used, measured)
        hint = f"{name}: predicted {budget_words(used, predicted)}, measured {words}"
        drawn = [
            svg.name(name, "start"),
            svg.line(low, 0, high, 0, "whisker"),
            svg.circle(axis.place(predicted), 0, 5.5, "ring pruned", hint=hint),
            svg.circle(axis.place(measured), 0, 3.5, "dot pruned", hint=hint),
            svg.value(words.replace(" us", " µs"), faint=False),
        ]
        parts.append(svg.row(number, drawn))
    unit = "Latency as a share of the original's" if used.unit == "x" else "Latency in microseconds, p50"
    start = "" if axis.low == 0 else f"; the axis starts at {axis.format(axis.low)}, not at 0"
    caption = (
        f"{unit}{start}. A round allocates, builds the network, and measures it interleaved with the original; its "
        "figure at the right is the measured one, the whisker the 95% interval. The next round corrects the error of "
        "this one."
    )
    legend = svg.legend(("ring pruned", "predicted"), ("pruned", "measured"), ("limit", "budget"))
    description = "; ".join(f"{name}: {budget_words(used, measured)}" for name, _, measured, _ in rows)
    return svg.figure("Rounds", description, parts, f"--rows:{len(rows)}", "rows", caption, legend)


def stairs_charts(latency: LatencyFigures) -> str:
    """Time over the width of each group, side by side; less important groups are collapsed."""
    stairs = latency.staircases
    scale = _scale(max(us for one in stairs for _, us in one.swept))
    style = "estimate" if latency.how == "estimate" else ""
    shown, folded = _apart(stairs)
    pictures = "".join(_stairs(one, scale, style) for one in shown)
    rest = "".join(_stairs(one, scale, style) for one in folded)
    if rest:
        words = f"{counted(len(folded), 'more group')}, like one of these or with less time"
        rest = f'<details><summary>{words}</summary><div class="smalls">{rest}</div></details>'
    others = "the other groups at their full width" if style else "all groups narrowed together"
    caption = (
        f"{'Estimate of the' if style else 'Measured'} time of the layers that a group of channels touches, in "
        f"{scale[1]}, over the group's width, with {others}. Each picture has its own axes, from 0. The period is the "
        "power of two that nearly all candidates are multiples of."
    )
    sweep = ("stair estimate", "sweep, estimate") if style else ("stair", "sweep")
    legend = svg.legend(("ring candidate", "candidate"), ("pruned", "chosen"), ("ring original", "original"), sweep)
    return f'<figure>{legend}<div class="smalls">{pictures}</div><figcaption>{caption}</figcaption></figure>{rest}'


def _apart(stairs: Sequence[StairFigures]) -> tuple[list[StairFigures], list[StairFigures]]:
    """The staircases to show, those with the most time and no two of them alike, and all others."""
    if len(stairs) <= OPEN:
        return list(stairs), []
    shown: list[StairFigures] = []
    folded: list[StairFigures] = []
    for one in stairs:
        new = len(shown) < OPEN and not any(_alike(one, other) for other in shown)
        (shown if new else folded).append(one)
    return shown, folded


def _alike(one: StairFigures, other: StairFigures) -> bool:
    (widths, times), (other_widths, other_times) = (zip(*stairs.swept, strict=True) for stairs in (one, other))
    return widths == other_widths and all(
        math.isclose(us, other_us, rel_tol=ALIKE) for us, other_us in zip(times, other_times, strict=True)
    )


def _scale(largest_us: float) -> tuple[float, str]:
    """The divisor of microseconds that keeps tick labels short, and the name of the resulting unit."""
    return (1000.0, "milliseconds") if largest_us >= 10_000 else (1.0, "microseconds")


def _stairs(one: StairFigures, scale: tuple[float, str], style: str) -> str:
    swept = {width: us / scale[0] for width, us in one.swept}
    width, chosen = one.width, one.chosen
    across = svg.Axis(0, width, width / 2 if width % 2 == 0 else svg.zoomed(0, width, 2).step)
    up = svg.zoomed(0, max(swept.values()), 3, floor=0)

    def height(us: float) -> float:
        return HEIGHT * (1 - up.place(us) / 100)

    parts = []
    for tick in up.ticks:
        parts.append(svg.line(0, height(tick), 100, height(tick), "grid"))
        parts.append(svg.text(0, height(tick) + 4, up.format(tick), "tick end", dx=-7))
    for tick in across.ticks:
        side = "begin" if tick == 0 else "end" if tick == width else ""
        parts.append(svg.text(across.place(tick), HEIGHT + 16, across.format(tick), f"tick {side}"))
    places = [(across.place(w), 100 - up.place(us)) for w, us in sorted(swept.items())]
    parts.append(svg.curve(places, 0, HEIGHT, f"stair {style}"))
    if chosen:
        parts.append(svg.line(across.place(chosen), 0, across.place(chosen), HEIGHT, "mark chosen"))
    for w in one.candidates:
        if w in swept and w not in (chosen, width):
            parts.append(svg.circle(across.place(w), height(swept[w]), 2.5, "ring candidate"))
    if width in swept:
        parts.append(svg.circle(across.place(width), height(swept[width]), 4, "ring original"))
    if chosen in swept:
        parts.append(svg.circle(across.place(chosen), height(swept[chosen]), 3.5, "dot pruned"))
    period = f"period {one.period}" if one.period > 1 else "no period"
    note = f"{width} → {chosen or 'removed'}, {period}" if chosen != width else f"{width}, {period}"
    description = f"{one.group}: {counted(width, 'channel')} before, {chosen} after; {period}"
    return svg.small(shorten(one.group, 30, keep="end"), note, description, parts, HEIGHT)


def layers_chart(latency: LatencyFigures) -> str:
    """Two bars for each layer, before and after; one for a removed layer."""
    rows = _longest(latency.layers)
    longest = max(max(one.before_us, one.after_us) for one in rows)
    divisor, unit = _scale(longest * 10)
    axis = svg.zoomed(0, longest / divisor, 4, floor=0)
    word = prediction_word(latency)
    style = " estimate" if word == "estimate" else ""
    parts = svg.grid(axis)
    for number, one in enumerate(rows):
        before, after = one.before_us / divisor, one.after_us / divisor
        change = f"{three_digits(before)} → {three_digits(after) if one.after_us else 'removed'}"
        hint = f"{one.name}: {change} {unit}, {word}"
        drawn = [
            svg.name(one.name, "end"),
            svg.rect(0, -7, axis.place(before), 6, f"bar original{style}", hint=hint),
            svg.rect(0, 0, axis.place(after), 6, f"bar pruned{style}", hint=hint),
            svg.value(change, faint=not one.after_us),
        ]
        parts.append(svg.row(number, drawn))
    rest = [one for one in latency.layers if one not in rows]
    left_out = ""
    if rest:
        less = counted(len(rest), "layer with less time is not drawn", "layers with less time are not drawn")
        left_out = f" {less}: {_sum(rest, divisor)} {unit}."
    caption = (
        f"{'Estimate, in' if style else 'Predicted by the cost model, in'} {unit}, in the order of execution; not "
        "measured one by one. Time outside the layers is not included. A layer without a second bar is "
        f"removed.{left_out}"
    )
    total = _sum(latency.layers, divisor)
    legend = svg.legend(("square original", f"before, {word}"), ("square pruned", f"after, {word}"))
    size = f"--rows:{len(rows)}"
    return svg.figure("Time by layer", f"All layers: {total} {unit}", parts, size, "rows wide", caption, legend)


def _longest(layers: Sequence[LayerTime]) -> list[LayerTime]:
    """The layers that take the most time, in the order of execution."""
    by_time = sorted(layers, key=lambda one: -max(one.before_us, one.after_us))
    bars = {one.name for one in by_time[:BARS]}
    return [one for one in layers if one.name in bars]


def _sum(layers: Sequence[LayerTime], divisor: float) -> str:
    before, after = sum(one.before_us for one in layers), sum(one.after_us for one in layers)
    return f"{three_digits(before / divisor)} → {three_digits(after / divisor)}"
