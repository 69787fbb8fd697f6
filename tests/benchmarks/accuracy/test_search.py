"""The rows of the benchmark of searches."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy.search import HEADS, TASKS, WAYS, cells, served_share, settings_of
from catro_deploy.records import RuntimeRow, Runtimes, Speedup
from tests.report.made import make_report

ROW = {
    "title": "a network",
    "budget": "0.35x",
    "way": "search",
    "seed": 1,
    "original_accuracy": 0.926,
    "accuracy": 0.9,
    "ratio": 0.34,
    "ratio_ci95": [0.33, 0.35],
    "precision": "int8",
    "variant": "precision int8",
    "minutes": 9.6,
    "variants": 11,
    "screened": 40,
    "epochs": 3,
}


def test_a_line_says_what_was_found_and_what_it_took():
    found = dict(zip(HEADS, cells(ROW), strict=True))
    assert (found["original, test"], found["pruned, test"]) == ("92.60%", "90.00%")
    assert found["latency, measured"] == "0.340x (0.330 to 0.350)"
    assert (found["variant"], found["search"]) == ("precision int8", "40 screened, 11 pruned in 10 min")


def test_one_pruning_has_no_search():
    row = ROW | {"way": "one", "minutes": None, "variants": None, "variant": ""}
    assert dict(zip(HEADS, cells(row), strict=True))["search"] == ""


@pytest.mark.parametrize("name", TASKS)
def test_all_ways_train_as_many_epochs(name, tmp_path):
    args = argparse.Namespace(gtsrb=tmp_path, cifar10=tmp_path, photographs=tmp_path, weights=Path("w"), minutes=1.0)
    one, int8, search, runtime = (settings_of(name, way, 0, args) for way in WAYS)
    assert one.finetune.epochs == int8.finetune.epochs == search.finetune.epochs + TASKS[name].extra
    assert [way.search.enabled for way in (one, int8, search, runtime)] == [False, False, True, True]
    assert (one.quantize.is_named, int8.quantize.precision) == (False, "int8")
    assert one.prune == int8.prune == search.prune == runtime.prune
    assert set(runtime.search.knobs) - set(search.search.knobs) == {"runtime"}
    assert search.finetune == runtime.finetune


def test_in_another_runtime_latency_is_a_share_of_the_originals_in_the_first():
    speedups = {
        ("openvino", "original"): Speedup(1.0, (1.0, 1.0)),
        ("onnxruntime", "original"): Speedup(0.8, (0.78, 0.82)),
        ("openvino", "pruned"): Speedup(2.0, (1.9, 2.1)),
    }
    rows = tuple(
        RuntimeRow(f"{name} 1.0", network, "fp32", 1.0, speedup, None, (), served=network == "pruned")
        for (name, network), speedup in speedups.items()
    )
    share, (low, high) = served_share(replace(make_report(), runtimes=Runtimes(rows, 2, {}, 0, (), {})))
    assert (share, low, high) == pytest.approx((0.4, 0.78 / 2.1, 0.82 / 1.9))
