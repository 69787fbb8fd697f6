"""The rows of the benchmark of networks for two targets."""

import argparse
from pathlib import Path

from benchmarks.accuracy.two_targets import HEADS, cells, key_of, settings_of

ROW = {
    "title": "a network",
    "budget": "0.5x",
    "targets": ["x86-cpu", "x86-cpu-openvino"],
    "original_accuracy": 0.926,
    "accuracy": 0.9,
    "ratios": {"x86-cpu": [0.5, 0.49, 0.51], "x86-cpu-openvino": [0.48, 0.47, 0.49]},
    "epochs": 3,
}


def test_a_line_has_the_latency_on_each_target():
    found = dict(zip(HEADS, cells(ROW), strict=True))
    assert found["pruned for"] == "x86-cpu and x86-cpu-openvino"
    assert found["latency, measured"] == (
        "x86-cpu: 0.500x (0.490 to 0.510)<br>x86-cpu-openvino: 0.480x (0.470 to 0.490)"
    )


def test_one_for_both_and_one_for_each_differ_in_their_targets_alone(tmp_path):
    folders = dict.fromkeys(("gtsrb", "cifar10", "photographs"), tmp_path)
    args = argparse.Namespace(**folders, weights=Path("w"), budget="0.5x", epochs=3)
    ways = (["x86-cpu", "x86-cpu-openvino"], ["x86-cpu"], ["x86-cpu-openvino"])
    both, *each = (settings_of("resnet20-gtsrb", targets, args) for targets in ways)
    assert [both.prune.target, *both.prune.also] == [one.prune.target for one in each]
    apart = {"target": "", "also": []}
    assert (
        len(
            {
                one.model_copy(update={"prune": one.prune.model_copy(update=apart)}).model_dump_json()
                for one in (both, *each)
            }
        )
        == 1
    )
    assert len({key_of("resnet20-gtsrb", targets, args) for targets in ways}) == 3
