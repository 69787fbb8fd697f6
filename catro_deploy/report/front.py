"""The budgets that a search tried: accuracy on validation images over latency, as text, table and chart."""

from html import escape

from catro_deploy.records import FrontPoint, Search
from catro_deploy.report import svg
from catro_deploy.report.agreement import METRICS, divergence_words, validation_heading
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import change_interval, loss_words, nats, percent, points
from catro_deploy.units import counted

__all__ = ["front_chart", "front_line", "front_table", "front_words"]

TOP, HEIGHT = 24.0, 150.0


def front_line(search: Search) -> str:
    """The result of the search in one line."""
    lost = points(-(search.chosen.drop_points or 0))
    of_what = f" of {METRICS['agreement']}" if search.metric == "agreement" else ""
    limit = f"loses at most {loss_words(search.max_drop)}{of_what}"
    if search.largest_kl_nats is not None:
        found, most = nats(search.chosen.scaled_kl_nats), nats(search.largest_kl_nats)
        limit = f"keeps the divergence from the original's outputs ({found}) within {most}"
        lost = f"{lost} points{of_what}, which so few images cannot resolve,"
    return (
        f"budget {search.budget}: the smallest of {len(search.front)} tried that {limit}; {lost} on validation images "
        f"after {counted(search.epochs, 'epoch')} of fine-tuning"
    )


def front_words(search: Search) -> str:
    """What the scores of the front mean, and what they do not."""
    if search.metric == "accuracy":
        original = f"compared with {percent(search.original_validation_accuracy)} for the original"
    else:
        original = f"and not an accuracy, since {search.metric_reason}"
    metric = METRICS[search.metric]
    tried = f"pruned, measured and fine-tuned for {counted(search.epochs, 'epoch')} only"
    then = (
        f"The network of the budget kept, {search.budget}, was then fine-tuned in full: the rest of this report is "
        "about it"
    )
    if not search.epochs:
        tried = "pruned and measured, without fine-tuning"
        then = f"The rest of this report is about the network of the budget kept, {search.budget}"
    return (
        f"{counted(len(search.front), 'budget was', 'budgets were')} tried for the smallest latency that loses "
        f"at most {loss_words(search.max_drop)} of {metric}. Each was {tried}; its "
        f"{metric} is on validation images, which are held out from the training set, {original}. The test images were "
        f"not used.{divergence_words(search)} {then}."
    )


def front_table(search: Search) -> Table:
    """Every budget that was tried, smallest first."""
    head = ["Budget", "Latency, measured", validation_heading(search), "Points", "MACs used"]
    rows = [_cells(one, search) for one in search.front]
    if search.largest_kl_nats is not None:
        head.append("Divergence")
        for row, one in zip(rows, search.front, strict=True):
            row.append("" if one.scaled_kl_nats is None else nats(one.scaled_kl_nats))
    outcomes = (_outcome(one, search) for one in search.front)
    whole = tuple((*row, outcome) for row, outcome in zip(rows, outcomes, strict=True))
    return Table((*head, "Within the allowed loss"), whole, frozenset(range(1, len(head))))


def _cells(one: FrontPoint, search: Search) -> list[str]:
    """The results of a budget, in the order of the columns."""
    if one.speedup is None:
        return [one.budget, "no network meets it", "", "", ""]
    score = one.validation_accuracy if search.metric == "accuracy" else one.agreement
    return [one.budget, f"{one.speedup.ratio:.3f}x", percent(score), _change(one), percent(one.macs_share)]


def _change(one: FrontPoint) -> str:
    """Points gained or lost; for accuracy, with the 95% interval."""
    change = points(-(one.drop_points or 0))
    bounds = one.change_ci95
    return f"{change} ({change_interval([100 * bound for bound in bounds])})" if bounds else change


def front_chart(search: Search) -> str:
    """Points lost over measured latency; the allowed loss is a line, the chosen budget is labelled."""
    met = [
        (one, one.speedup.ratio, one.drop_points)
        for one in search.front
        if one.speedup is not None and one.drop_points is not None
    ]
    allowed = search.max_drop
    drops = [0.0, allowed, *(drop for _, _, drop in met)]
    across = svg.zoomed(min(ratio for _, ratio, _ in met), 1.0, 4, floor=0, ceiling=1)
    up = svg.zoomed(min(drops), max(drops), 4)

    def height(drop: float) -> float:
        return TOP + HEIGHT * (1 - up.place(drop) / 100)

    heads = ("of the original's latency", "Points lost, validation images")
    parts = svg.scales(across, up, TOP, HEIGHT, heads, ("x", ""))
    parts.append(svg.line(0, height(allowed), 100, height(allowed), "limit"))
    places = [(across.place(ratio), 100 - up.place(drop)) for _, ratio, drop in met]
    original = (across.place(1.0), 100 - up.place(0.0))
    parts.append(svg.curve(sorted([*places, original]), TOP, HEIGHT, "stair"))
    parts.append(svg.circle(across.place(1.0), height(0.0), 5, "ring original", hint="original"))
    for one, ratio, drop in met:
        hint = f"{one.budget}: measured {ratio:.3f}x, {points(-drop)} points"
        parts.append(_point(one, across.place(ratio), height(drop), search, hint))
    unmet = [one.budget for one in search.front if one.speedup is None]
    trained = "after a short fine-tuning" if search.epochs else "without fine-tuning"
    caption = (
        f"Points of {METRICS[search.metric]} lost on validation images, {trained}, over latency "
        "as a share of the original's, measured. Both axes are zoomed: latency runs from "
        f"{across.format(across.low)}x to 1x."
        + (f" Not drawn, since no network meets it: {escape(', '.join(unmet))}." if unmet else "")
    )
    legend = svg.legend(
        ("pruned", "within the allowed loss"),
        ("ring pruned", "beyond it"),
        ("ring original", "original"),
        ("limit", f"{loss_words(allowed)} allowed"),
    )
    described = "; ".join(f"{one.budget}: {points(-drop)} points" for one, _, drop in met)
    size = f"height:{TOP + HEIGHT + 44:g}px"
    return svg.figure("Front", described, parts, size, "curves", caption, legend)


def _point(one: FrontPoint, x: float, y: float, search: Search, hint: str) -> str:
    if one.budget != search.budget:
        return svg.circle(x, y, 4, "dot pruned" if one.kept else "ring pruned", hint=hint)
    side, dx = ("begin", 9) if x < 70 else ("end", -9)
    label = svg.text(x, y - 9, f"kept: {one.budget}", f"tick chosen {side}", dx=dx)
    return svg.circle(x, y, 8, "ring chosen", hint=hint) + svg.circle(x, y, 4, "dot pruned", hint=hint) + label


def _outcome(one: FrontPoint, search: Search) -> str:
    if one.budget == search.budget:
        return "yes, kept"
    return "yes" if one.kept else "no"
