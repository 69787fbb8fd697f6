"""Widths of a group that couples several channels of a layer."""

import pytest

from catro_deploy.graph.coupling.trace import trace
from tests.graph.cut_networks import Grouped
from tests.graph.networks import randomised


@pytest.mark.parametrize(("channels", "stem", "expand"), [(1, 1, 1), (3, 3, 1), (4, 4, 2), (8, 8, 3), (12, 12, 4)])
def test_the_narrowest_width_counts_channels_of_the_layer(channels, stem, expand):
    """The convolution groups of ``expand`` have 3 channels each."""
    groups = {group.name: group for group in trace(randomised(Grouped()), (3, 8, 8)).groups}
    assert groups["stem"].narrowest(channels) == stem
    assert groups["expand"].narrowest(channels) == expand
