"""The lines of the table of precisions."""

import pytest

from benchmarks.precision.int8 import HEADS, WHOLE, cells

ROW = {
    "title": "a network",
    "budget": "0.25x",
    "macs_share": 0.5,
    "original_accuracy": 0.995,
    "fp32_accuracy": 0.99,
    "served": "int8",
    "served_accuracy": 0.9875,
    "candidates": {
        "fp32": {"speedup": {"median": 2.0, "ci95": [1.9, 2.1]}},
        "int8": {"speedup": {"median": 4.0, "ci95": [3.33, 5.0]}},
    },
    "kept": ["conv1"],
    "operators": {"QLinearConv": 20, "QGemm": 1, "Conv": 1, "QuantizeLinear": 3},
    "profile": {"rmspe": 0.0312},
}


def test_a_line_says_what_integers_cost_and_give():
    found = dict(zip(HEADS, cells(ROW), strict=True))
    assert (found["float32"], found["int8"], found["drop"]) == ("99.00%", "98.75%", "0.75")
    assert (found["float32, speedup"], found["int8 over float32"]) == ("2.00x", "2.00x")
    assert found["int8, speedup (95% CI)"] == "4.00x (3.33 to 5.00)"
    assert (found["integer nodes"], found["kept in float32"]) == ("21", "conv1")
    assert found["profile: RMSPE"] == "3.12%"


@pytest.mark.parametrize("shown", [True, False])
def test_integers_that_are_not_served_show_no_accuracy(shown):
    row = ROW | {"served": "fp32", "budget": WHOLE, "kept": None, "operators": None, "profile": None}
    if not shown:  # no int8 candidate kept the accuracy, so none was timed
        row["candidates"] = {"fp32": ROW["candidates"]["fp32"]}
    found = dict(zip(HEADS, cells(row), strict=True))
    assert (found["int8"], found["drop"], found["budget"]) == ("not served", "", "as it is")
    assert found["int8 over float32"] == ("2.00x" if shown else "")
