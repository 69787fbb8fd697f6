"""Charts of every report, each an HTML figure made from plain records; those of latency are in latency_charts."""

from collections.abc import Mapping, Sequence
from html import escape

from catro_deploy.records import Finetune
from catro_deploy.records.figures import ClassFigures, GroupFigures, Histogram, Latency, Pair
from catro_deploy.report import svg
from catro_deploy.report.finetuning import finetuning_words
from catro_deploy.report.wording import count, isolated, minus, ms, one_image_words, percent, points, typeset
from catro_deploy.units import counted

__all__ = ["accuracy_chart", "finetune_chart", "latency_chart", "widths_chart"]


def latency_chart(histogram: Histogram, latencies: tuple[Latency, Latency]) -> str:
    """Histograms of both networks' calls, one above the other on a common axis, with percentile marks."""
    low, high = histogram.low_ms, histogram.high_ms
    axis = svg.Axis(low, high, svg.zoomed(low, high, 5).step)
    height, gap = 84.0, 34.0
    bottom = 2 * (height + gap)
    parts = [*svg.grid(axis), svg.text(100, "100%", "ms", "tick end", dy=34)]
    unseen: dict[str, list[str]] = {}
    both = (("original", histogram.original), ("pruned", histogram.pruned))
    for row, ((name, counts), latency) in enumerate(zip(both, latencies, strict=True)):
        base = (row + 1) * (height + gap)
        marks = {"p50": latency.p50, "p90": latency.p90, "p99": latency.p99}
        spelled = " · ".join(f"{mark} {ms(time)}" for mark, time in marks.items())
        parts.append(svg.text(0, base - height - 12, f"{name.capitalize()}: {spelled} ms", "head"))
        parts += _bars(counts, base, height, name)
        for mark, time in marks.items():
            place = axis.place(time)
            if time <= high:
                parts.append(svg.line(place, base - height - 4, place, base, f"mark {mark}"))
        unseen[name] = [mark for mark, time in marks.items() if time > high]
    caption = (
        "Time of one call against the share of calls, each network scaled to its own peak. Marks: p50 solid, p90 "
        f"dashed, p99 dotted. The axis starts at {'0' if low == 0 else f'{ms(low)} ms, not at 0'}"
        f"{_beyond(histogram.beyond, unseen)}."
    )
    description = f"original: median {ms(latencies[0].p50)} ms; pruned: median {ms(latencies[1].p50)} ms"
    return svg.figure("Distribution of latency", description, parts, f"height:{bottom:g}px", "full", caption)


def _beyond(calls: Pair, marks: Mapping[str, Sequence[str]]) -> str:
    """The calls and marks that are not drawn, since they are beyond the end of the axis; empty if there are none.

    ``marks`` has those of each network.
    """
    slower = calls.original + calls.pruned
    if not slower:
        return ""
    named = [f"{' and '.join(some)} of the {network}" for network, some in marks.items() if some]
    if len(named) == 2 and marks["original"] == marks["pruned"]:
        named = [f"{' and '.join(marks['original'])} of both"]
    verb = "is" if sum(map(len, marks.values())) == 1 else "are"
    also = f", and so {verb} {' and '.join(named)}" if named else ""
    return f"; {counted(slower, 'slower call is', 'slower calls are')} beyond its end{also}"


def _bars(counts: Sequence[int], base: float, height: float, style: str) -> list[str]:
    peak, width = max(counts), 100 / len(counts)
    tall = [(index, number / peak * height) for index, number in enumerate(counts) if number]
    return [svg.rect(i * width, base - h, width, h, f"bar {style}") for i, h in tall]


def accuracy_chart(classes: Sequence[ClassFigures]) -> str:
    """A dumbbell for each class: a ring for the original, a dot for the pruned network, on a zoomed axis.

    Of many classes, those with the lowest change.
    """
    shown = svg.foremost(classes, key=_change)
    shares = [share * 100 for entry in shown for share in (entry.original, entry.pruned)]
    axis = svg.zoomed(min(*shares, 99), 100, 4, floor=0, ceiling=100)
    parts = svg.grid(axis, "%")
    for number, entry in enumerate(shown):
        before, after = (axis.place(share * 100) for share in (entry.original, entry.pruned))
        change = _change(entry) * 100
        both = f"{percent(entry.original)} → {percent(entry.pruned)}"
        hint = f"{isolated(entry.name)}: {both} of {counted(entry.images, 'image')}"
        drawn = [
            svg.name(entry.name, "start"),
            svg.line(before, 0, after, 0, "link"),
            svg.circle(before, 0, 5.5, "ring original", hint=hint),
            svg.circle(after, 0, 3.5, "dot pruned", hint=hint),
            svg.value(minus(points(change)) if change else "0", faint=change == 0),
        ]
        parts.append(svg.row(number, drawn))
    worst = min(classes, key=_change)
    loss = -_change(worst) * 100
    name = isolated(worst.name)
    lost = f"Largest loss: {name}, {minus(points(-loss))} points." if loss > 0 else "No class lost accuracy."
    few = min(classes, key=lambda entry: int(entry.images))
    which = f"The {len(shown)} of {count(len(classes))} classes with the lowest change. "
    some = which if len(shown) < len(classes) else ""
    caption = (
        f"{some}Accuracy on the test images; at the right, the change in points. The axis runs from "
        f"{axis.format(axis.low)}% to 100%{'' if axis.low == 0 else ', not from 0'}. {escape(lost)} "
        f"The smallest class has {counted(few.images, 'image')}, so {one_image_words(few.images)}."
    )
    legend = svg.legend(("original", "original"), ("pruned", "pruned"))
    return svg.figure("Accuracy by class", lost, parts, f"--rows:{len(shown)}", "rows", caption, legend)


def _change(entry: ClassFigures) -> float:
    return entry.pruned - entry.original


def widths_chart(groups: Sequence[GroupFigures]) -> str:
    """A bar for each group of coupled layers: the track is the original width, the filled part the kept width."""
    widest = max(group.width_before for group in groups)
    common = widest <= 8 * min(group.width_before for group in groups)
    axis = (
        svg.Axis(0, widest, widest / 4 if widest % 4 == 0 else svg.zoomed(0, widest).step)
        if common
        else svg.Axis(0, 100, 25)
    )
    parts = svg.grid(axis, "" if common else "%")
    for number, group in enumerate(groups):
        before, after = group.width_before, group.width_after
        unit = 1 if common else 100 / before
        change = f"{before} → {after}" if before != after else f"{after}"
        drawn = [
            svg.name(group.name, "end"),
            svg.rect(0, -6, axis.place(before * unit), 12, "track", hint=f"{group.name}: {change}"),
            svg.rect(0, -6, axis.place(after * unit), 12, "bar kept" if group.fixed else "bar pruned"),
            svg.value(change, faint=before == after),
        ]
        parts.append(svg.row(number, drawn))
    kept, had = sum(group.width_after for group in groups), sum(group.width_before for group in groups)
    scale = "Channels" if common else "Share of each group's own channels"
    gone = sum(not group.width_after for group in groups)
    caption = f"{scale}, by group of layers that must share them. Dark grey bars are fixed." + (
        f" 0: removed with the residual branch ({count(gone)} of {counted(len(groups), 'group')})." if gone else ""
    )
    description = f"{kept} of {counted(had, 'channel')} are kept."
    legend = svg.legend(("pruned", "kept"), ("track", "cut"))
    return svg.figure("Widths before and after", description, parts, f"--rows:{len(groups)}", "rows", caption, legend)


def finetune_chart(finetune: Finetune) -> str:
    """Validation accuracy over epochs, and the loss below it."""
    epochs = finetune.epochs
    known = [(e.epoch, e.validation_accuracy * 100) for e in epochs if e.validation_accuracy is not None]
    panels = [
        ("Validation accuracy", "%", known),
        ("Training loss", "", [(e.epoch, e.loss) for e in epochs]),
    ]
    step = max(1.0, svg.zoomed(0, epochs[-1].epoch, 5).step)
    across = svg.Axis(0 if len(epochs) == 1 else epochs[0].epoch, epochs[-1].epoch, step)
    parts: list[str] = []
    top, height = 24.0, 110.0
    for title, unit, numbers in panels:
        if numbers:
            parts += _panel(title, unit, numbers, across, top, height)
            top += height + 44
    parts += [svg.text(across.place(t), top - 26, across.format(t), "tick") for t in across.ticks]
    parts.append(svg.text(100, top - 8, "epoch", "tick end"))
    summary = typeset(finetuning_words(finetune))
    caption = (
        f"{escape(summary)} Validation images are held out from the training set; the test images were not used. The "
        "vertical axes are zoomed to the range of the values."
    )
    return svg.figure("Fine-tuning", summary, parts, f"height:{top:g}px", "curves", caption)


def _panel(
    title: str, unit: str, numbers: Sequence[tuple[int, float]], across: svg.Axis, top: float, height: float
) -> list[str]:
    highest = 100.0 if unit == "%" else max(number for _, number in numbers)
    lowest = min(number for _, number in numbers)
    axis = svg.zoomed(lowest, highest, 3, floor=min(lowest, 0))
    parts = [svg.text(0, top - 10, title, "head")]
    for tick in axis.ticks:
        y = top + height * (1 - axis.place(tick) / 100)
        parts += [
            svg.line(0, y, 100, y, "grid"),
            svg.text(0, y + 4, axis.format(tick) + unit, "tick end", dx=-8),
        ]
    places = [(across.place(epoch), 100 - axis.place(number)) for epoch, number in numbers]
    if len(places) > 1:
        parts.append(svg.curve(places, top, height, "curve pruned"))
    dots = places if len(places) <= 20 else places[-1:]
    return parts + [svg.circle(x, top + y / 100 * height, 3.5, "dot pruned") for x, y in dots]
