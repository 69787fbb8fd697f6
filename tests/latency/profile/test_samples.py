"""Drift, nodes and layers, by hand."""

import pytest

from catro_deploy.agent.events import NodeTimes, Sample
from catro_deploy.errors import FaultError
from catro_deploy.latency.profile.samples import Timed, cells_of, reference_level_us, timed
from catro_deploy.latency.table import Cell


def sample(nodes: list, reference: list[float], whole: list[float] | None = None) -> Sample:
    """A sample of ``nodes``, each with its name and its times by round."""
    times = tuple(NodeTimes(name, tuple(rounds_us)) for name, rounds_us in nodes)
    return Sample("square/0", 1.0, times, None if whole is None else tuple(whole), tuple(reference))


def test_the_level_is_the_median_over_all_rounds():
    assert reference_level_us([sample([], [100, 110]), sample([], [90, 400, 120])]) == 110


def test_drift_is_divided_out():
    """The machine ran at half its speed in the second round, and at twice its speed in the third."""
    nodes = [["conv::0", [10, 20, 5]], ["fc::1", [4, 8, 2]]]
    found = timed(sample(nodes, [100, 200, 50], [30, 60, 15]), 100, ("conv", "fc"))
    assert found == Timed({"conv": (10, 1), "fc": (4, 1)}, 30, 0)


def test_the_median_round_counts_and_the_others_are_disagreement():
    found = timed(sample([["conv::0", [10, 16, 11]]], [50, 50, 50], [20, 26, 21]), 50, ("conv",))
    assert found.layers == {"conv": (11, 1)}
    assert found.whole_us == 21
    assert found.disagreement == pytest.approx(max(6 / 11, 6 / 21))
    assert timed(sample([["conv::0", [20, 21, 20]]], [50, 50, 50], [20, 30, 20]), 50, ("conv",)).disagreement == 0.5


def test_a_network_that_was_not_timed_as_a_whole():
    found = timed(sample([["conv::0", [10, 11]]], [50, 50]), 50, ("conv",))
    assert found.whole_us is None
    assert found.disagreement == pytest.approx(1 / 10.5)


def test_nodes_of_the_runtime_belong_to_the_layer_before():
    nodes = [
        ["ReorderInput", [1]],
        ["conv::0.0_nchwc", [10]],
        ["ReorderOutput_token_3", [2]],
        ["fc::5", [4]],
        ["conv::7", [3]],
        ["HardSigmoid_9", [5]],
    ]
    found = timed(sample(nodes, [100]), 100, ("conv", "fc"))
    assert found.layers == {"conv": (1 + 10 + 2 + 3 + 5, 5), "fc": (4, 1)}


def test_names_that_only_look_like_a_layers_belong_to_the_layer_before():
    nodes = [["conv::0", [10]], ["near fc::5", [3]], ["fc::5", [4]]]
    assert timed(sample(nodes, [100]), 100, ("conv", "fc")).layers == {"conv": (13, 2), "fc": (4, 1)}


@pytest.mark.parametrize("nodes", [[["conv::0", [10]]], [["Conv_0", [10]], ["Gemm_1", [2]]], []])
def test_a_layer_without_a_node_is_an_error_and_not_free(nodes):
    with pytest.raises(FaultError, match=r"\bfc\b"):
        timed(sample(nodes, [100]), 100, ("conv", "fc"))


def test_layers_of_one_shape_and_width_share_a_cell():
    """Two layers of one shape, in two networks: three times at (4, 8), with quartiles 11, 12 and 16, and one time."""
    shapes = {"a": "conv", "b": "conv", "fc": "linear"}
    networks = [
        Timed({"a": (10, 1), "b": (12, 2), "fc": (5, 1)}, None, 0),
        Timed({"a": (20, 3), "b": (30, 1), "fc": (7, 1)}, None, 0),
    ]
    widths = [{"a": (4, 8), "b": (4, 8), "fc": (8, 3)}, {"a": (4, 8), "b": (8, 8), "fc": (4, 3)}]
    assert cells_of(networks, widths, shapes) == {
        "conv": {(4, 8): Cell(12, 2, 5 / 12, 3), (8, 8): Cell(30, 1, 0, 1)},
        "linear": {(8, 3): Cell(5, 1, 0, 1), (4, 3): Cell(7, 1, 0, 1)},
    }
