"""A chart of the variants of a search: agreement with the original over measured latency, both with intervals."""

from collections.abc import Callable

from catro_deploy.records import Variant, Variants
from catro_deploy.report import svg
from catro_deploy.report.wording import percent
from catro_deploy.statistics.intervals import wilson

__all__ = ["variants_chart"]

TOP, HEIGHT, BELOW = 24.0, 190.0, 44.0
Place = Callable[[float], float]
Drawn = tuple[int, Variant, float, float]
"""The number of a variant, the variant, its share of the original's latency, and its agreement, a fraction."""


def variants_chart(found: Variants, number: int) -> str:
    """All variants that met their budget; ``number`` is the one that was taken."""
    drawn: list[Drawn] = [
        (place, one, one.speedup.ratio, one.agreement)
        for place, one in enumerate(found.variants, 1)
        if one.speedup is not None and one.agreement is not None
    ]
    images = found.validation_images
    times = [end for _, one, _, _ in drawn if one.speedup for end in one.speedup.ratio_ci95]
    scores = [end for _, _, _, score in drawn for end in wilson(score, images)]
    across = svg.zoomed(min(times), max(times), 5, floor=0)
    up = svg.zoomed(100 * min(scores), 100 * max(scores), 4, floor=0, ceiling=100)

    x = across.place

    def y(score: float) -> float:
        return TOP + HEIGHT * (1 - up.place(100 * score) / 100)

    heads = ("of the original's latency, measured", "Agreement, validation images")
    parts = svg.scales(across, up, TOP, HEIGHT, heads, ("x", "%"))
    for one in drawn:
        parts += _whiskers(one, images, x, y)
    for one in drawn:
        parts += _mark(one, x, y, taken=one[0] == number)
    described = "; ".join(f"{one.name}: {percent(score)} at {ratio:.3f}x" for _, one, ratio, score in drawn)
    caption = (
        "Bars are 95% intervals. Both axes are zoomed: they start at "
        f"{across.format(across.low)}x and {up.format(up.low)}%."
    )
    legend = [("dot pruned", "trained briefly"), ("ring pruned", "untrained"), ("ring chosen", "taken")]
    size = f"height:{TOP + HEIGHT + BELOW:g}px"
    return svg.figure("Variants", described, parts, size, "curves", caption, svg.legend(*legend))


def _whiskers(one: Drawn, images: int, x: Place, y: Place) -> list[str]:
    _, variant, ratio, score = one
    assert variant.speedup is not None
    left, right = map(x, variant.speedup.ratio_ci95)
    low, high = map(y, wilson(score, images))
    return [
        svg.line(left, y(score), right, y(score), "spread"),
        svg.line(x(ratio), low, x(ratio), high, "spread"),
    ]


def _mark(one: Drawn, x: Place, y: Place, *, taken: bool) -> list[str]:
    number, variant, ratio, score = one
    hint = f"{number}: {variant.name}: {percent(score)} at {ratio:.3f}x"
    style = "dot pruned" if len(variant.kl_nats) > 1 else "ring pruned"
    parts = [svg.circle(x(ratio), y(score), 8, "ring chosen")] if taken else []
    parts.append(svg.circle(x(ratio), y(score), 4, style, hint=hint))
    side, dx = ("begin", 9) if x(ratio) < 90 else ("end", -9)
    parts.append(svg.text(x(ratio), y(score) - 7, str(number), f"tick {side}{' chosen' if taken else ''}", dx=dx))
    return parts
