"""How Algorithm 2 grew the layers, and which channels were kept: figures 5 and 6 of the paper, for one run."""

from collections.abc import Sequence

from catro_deploy.records.figures import GroupFigures
from catro_deploy.report import svg
from catro_deploy.units import counted

__all__ = ["kept_chart", "path_chart"]

TALL = 16
"""The height of a group at its final width, in pixels."""


def path_chart(path: Sequence[tuple[str, int]], groups: Sequence[GroupFigures]) -> str:
    """A silhouette for each group: its width at every iteration. ``path`` holds the groups that grew and the widths."""
    grown = {name for name, _ in path}
    shown = [group for group in groups if group.name in grown]
    axis = svg.zoomed(0, len(path), 5, floor=0)
    parts = svg.grid(axis)
    for number, group in enumerate(shown):
        steps = [(place, width) for place, (name, width) in enumerate(path, 1) if name == group.name]
        ends = [place for place, _ in steps[1:]] + [len(path)]
        drawn = [svg.name(group.name, "end"), svg.value(f"{group.width_after}", faint=False)]
        for (start, width), end in zip(steps, ends, strict=True):
            tall = TALL * width / group.width_after
            hint = f"{group.name}: {width} of {group.width_before} from iteration {start} on"
            left = axis.place(start)
            drawn.append(svg.rect(left, TALL / 2 - tall, axis.place(end) - left, tall, "bar pruned", hint=hint))
        parts.append(svg.row(number, drawn))
    last, words = path[-1][0], counted(len(path), "iteration")
    caption = (
        f"Algorithm 2: in each of {words} one group grows, the one with the largest gain for its cost. From "
        "its first growth on, the height is its width as a share of the final width, which is at the right."
    )
    description = f"{words} over {counted(len(shown), 'group')}, the last in {last}."
    return svg.figure("Search path", description, parts, f"--rows:{len(shown)}", "rows", caption)


def kept_chart(groups: Sequence[GroupFigures]) -> str:
    """A strip for each group, from its first channel to its last; kept channels are filled."""
    parts: list[str] = []
    for number, group in enumerate(groups):
        drawn = [
            svg.name(group.name, "end"),
            svg.rect(0, -6, 100, 12, "track"),
            svg.strip(_runs(group.kept), group.width_before, 12, "bar kept" if group.fixed else "bar pruned"),
            svg.value(f"{group.width_after} of {group.width_before}", faint=bool(group.fixed)),
        ]
        parts.append(svg.row(number, drawn))
    caption = "The channels that are kept, from the first of each group at the left to its last."
    description = "; ".join(f"{group.name}: {group.width_after}" for group in groups[:5])
    legend = svg.legend(("pruned", "kept"), ("track", "cut"))
    return svg.figure("Kept channels", description, parts, f"--rows:{len(groups)}", "rows", caption, legend)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last number of each run of consecutive ``numbers``, which are in ascending order."""
    runs: list[tuple[int, int]] = []
    for one in numbers:
        if runs and runs[-1][1] == one - 1:
            runs[-1] = (runs[-1][0], one)
        else:
            runs.append((one, one))
    return runs
