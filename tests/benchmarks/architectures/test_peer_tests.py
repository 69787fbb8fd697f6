"""The networks of torch-pruning's tests: they run, the table agrees with the rows, and both tools prune one of them."""

import pytest
import torch

from benchmarks.architectures.check import PASSED
from benchmarks.architectures.peer_checks import (
    CLASSES,
    CUT,
    EQUAL,
    HISTORY,
    ONNX,
    PICKLED,
    RELOAD,
    STATE,
    _cut_to_half,
    _network,
    check_both,
)
from benchmarks.architectures.peer_networks import LEFT_OUT, NETWORKS, PeerNetwork
from benchmarks.architectures.peer_tests_tables import cells, peer_tables

OWN = [network for network in NETWORKS if not network.model.startswith("torchvision:")]


def row(
    ours: dict[str, str] | None = None, theirs: dict[str, str] | None = None, **figures: object
) -> dict[str, object]:
    whole = dict.fromkeys((CUT, EQUAL, RELOAD, ONNX), PASSED)
    peer = dict.fromkeys((CUT, HISTORY, STATE, PICKLED, ONNX), PASSED)
    return {
        "tests": ["split"],
        "ours": {"steps": whole if ours is None else ours, "macs_share": 0.498},
        "theirs": {"steps": peer | (theirs or {}), "macs_share": 0.512, "importance": "MagnitudeImportance"} | figures,
    }


def named(title: str) -> PeerNetwork:
    (network,) = [network for network in NETWORKS if network.title == title]
    return network


@pytest.mark.parametrize("network", OWN, ids=lambda network: network.title)
def test_each_network_classifies_images_and_says_what_makes_it_hard(network):
    model, batches = _network(network)
    images, labels = batches[0]
    with torch.inference_mode():
        assert model(images).shape == (len(labels), CLASSES)
    assert type(model).__doc__.startswith("test_")
    assert all(f"test_{test}" in type(model).__doc__ for test in network.tests)


def test_no_test_is_both_taken_and_left_out():
    taken = [test for network in NETWORKS for test in network.tests]
    left = [test for tests, _ in LEFT_OUT for test in tests]
    assert len({*taken, *left}) == len(taken) + len(left)


def test_a_line_says_what_each_made_of_a_network():
    found = row(theirs={STATE: "UnpicklingError: no"})
    assert cells("Some", found, "ours") == ["Some", "split", "catro-deploy", "50%", *["yes"] * 3, "", "", "yes"]
    expected = ["Some", "split", "torch-pruning", "51%", "yes", "", "yes", "no", "yes", "yes"]
    assert cells("Some", found, "theirs") == expected


def test_a_network_that_is_not_cut_has_no_share_and_no_later_steps():
    found = cells("Some", row(ours={CUT: "ModelError: no | way"}), "ours")
    assert found[3:] == ["-", "no", "", "", "", "", ""]
    text = "\n".join(peer_tables({"Some": row(ours={CUT: "ModelError: no | way"}), "Other": row()}))
    assert "| Some | catro-deploy | cut | ModelError: no \\| way |" in text
    assert "Of 2 networks: catro-deploy: cut 1, equal to the masked original 1," in text


def test_refused_candidates_are_reported():
    figures = {"refused": 38, "refusal": "IndexError: 64", "importance": "RandomImportance"}
    text = "\n".join(peer_tables({"Some": row(**figures)}))
    assert "| Some | torch-pruning | 38 ratios | IndexError: 64; cut by `RandomImportance` instead |" in text


def test_the_importance_of_a_cut_is_noted():
    pytest.importorskip("torch_pruning")
    model, batches = _network(named("ConcatSplit"))
    figures: dict[str, object] = {}
    _cut_to_half(model, batches[0][0][:1], figures)
    assert figures["importance"] == "MagnitudeImportance"


@pytest.mark.slow
def test_a_small_network_goes_through_both(tmp_path):
    pytest.importorskip("torch_pruning")
    found = check_both(named("ResidualMlp"), tmp_path)
    assert found["ours"]["steps"] == dict.fromkeys((CUT, EQUAL, RELOAD, ONNX), PASSED)
    theirs = found["theirs"]["steps"]
    assert {step for step, outcome in theirs.items() if outcome == PASSED} == {CUT, HISTORY, PICKLED, ONNX}
    assert "weights only" in theirs[STATE].lower()
    assert all(0.4 < found[side]["macs_share"] <= 0.5 for side in ("ours", "theirs"))
