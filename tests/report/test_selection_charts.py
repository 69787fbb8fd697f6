"""Charts of the search's path and of the kept channels: what is drawn where."""

import re

import pytest

from catro_deploy.records.figures import GroupFigures
from catro_deploy.report.selection_charts import kept_chart, path_chart


def group(name, before, kept, fixed=""):
    return GroupFigures(name, (name,), before, len(kept), None, None, fixed, tuple(kept))


def test_each_row_of_kept_channels_is_one_piece():
    drawn = kept_chart([group("conv1", 8, [0, 1, 2, 5, 7]), group("fc", 2, [0, 1], fixed="logits")])
    strips = re.findall(r'viewBox="0 0 (\d+) 1".*?d="([^"]*)" class="([^"]*)"', drawn)
    assert strips == [
        ("8", "M0 0h3v1h-3zM5 0h1v1h-1zM7 0h1v1h-1z", "bar pruned"),
        ("2", "M0 0h2v1h-2z", "bar kept"),
    ]
    assert "5 of 8" in drawn


def test_nothing_kept_is_an_empty_strip():
    assert 'd=""' in kept_chart([group("gone", 8, [])])


def test_a_group_has_its_width_from_one_iteration_to_the_next_in_which_it_grows():
    """Ten iterations: conv1 (8 channels) grows to 4 in the first and to 8 in the sixth; conv2 grows in the others."""
    path = [("conv1", 4), *[("conv2", width) for width in (4, 5, 6, 7)], ("conv1", 8), *[("conv2", 8)] * 4]
    groups = [group("conv1", 8, list(range(8))), group("conv2", 16, list(range(8))), group("still", 4, [0])]
    drawn = path_chart(path, groups)
    rows = drawn.split('<g class="row"')[1:]
    assert len(rows) == 2  # a group that never grew is not drawn
    bars = re.findall(r'<rect x="([\d.]+)%" y="([\d.-]+)" width="([\d.]+)%" height="([\d.]+)"', rows[0])
    numbers = [tuple(map(float, bar)) for bar in bars]
    assert numbers == [pytest.approx((10, 0, 50, 8)), pytest.approx((60, -8, 40, 16))]
    assert "10 iterations" in drawn
