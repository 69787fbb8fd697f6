"""Points, verdicts, page and plots of the benchmark of fronts on made-up rows, and rows that are actually run."""

import argparse
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict
from importlib.metadata import version

import pytest

from benchmarks import peers
from benchmarks.accuracy import front, front_page, front_rows, reconstruction
from benchmarks.accuracy.front_points import Interval, Point, compare, original_of, points_of, undominated
from benchmarks.accuracy.front_rows import BUDGETS, TASKS, TRAINED, WAYS, all_rows, rows_of, stored_rows
from benchmarks.accuracy.front_selection import is_selected
from benchmarks.accuracy.reconstruction_rows import CASES, Case, Row
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.errors import MissedError

ENVIRONMENT = {"processor": "AMD EPYC", "cores": 2, "torch": "2.14", "date": "2026-11-25"}
L1 = "torch-pruning L1"


def result(row, latency=0.5, accuracy=0.9, images=400, half=0.01, **more):
    fields = {
        "accuracy": accuracy,
        "untrained_accuracy": accuracy - 0.2,
        "original_accuracy": 0.99,
        "test_images": images,
        "latency_ratio": latency,
        "latency_ratio_ci95": [latency - half, latency + half],
        "environment": ENVIRONMENT,
    }
    return asdict(row) | fields | ({"kl": [4.0, 0.2]} if row.pruning == "ours" else {}) | more


def trained(pruning, recipe, budget, latency, accuracy, seed=0, **more):
    row = Row("resnet20-gtsrb", budget, pruning, recipe, "3 epochs", seed)
    return {row.name: result(row, latency, accuracy, **more)}


def point(latency, accuracy, way=("ours", "gentle"), error=0.0, drift=0.0):
    ends = Interval(latency, latency - drift, latency + drift), Interval(accuracy, accuracy - error, accuracy + error)
    return Point(way, "0.5x", *ends)


ORIGINAL = point(1.0, 100.0, ("original", ""))


def side(other, *ours):
    verdict = compare(other, {("ours", "gentle"): ours}, ORIGINAL)
    return verdict.side, pytest.approx(verdict.gap)


def test_rows_are_those_of_ten_methods_at_five_budgets():
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    assert set(TASKS) <= set(CASES)
    assert TRAINED == ("none", "3 epochs", "10 epochs")
    assert len(rows_of(TASKS[:1], WAYS, BUDGETS, ["none"], (0, 1, 2))) == 10 * 5  # untrained: one seed, one recipe
    assert len(rows_of(TASKS[:1], WAYS, BUDGETS, ["3 epochs"], (0, 1, 2))) == (1 + 1 + 8 * 2) * 5 * 3


def test_all_methods_are_selected_without_training_and_a_few_after_it():
    def selected(task, training):
        return list(filter(is_selected, rows_of([task], WAYS, BUDGETS, [training], [0])))

    assert len(selected(TASKS[-1], "none")) == 10 * 5
    trained = selected(TASKS[-1], "3 epochs")
    assert len(trained) == 5 + (1 + 2 + 3) * 2
    assert {row.budget for row in trained if row.pruning != "ours"} == {"0.5x", "0.35x"}
    assert [task for task in TASKS if selected(task, "10 epochs")] == ["resnet20-cifar10"]


def test_rows_of_both_benchmarks_are_stored_once(monkeypatch):
    shared = Row("resnet20-cifar10", "0.5x", L1, "usual", "none")
    elsewhere = Row("resnet20-cifar10", "0.35x", L1, "usual", "none")
    other = Row("resnet20-gtsrb", "0.25x", L1, "usual", "none")
    mine = Row("resnet20-gtsrb", "0.5x", L1, "usual", "3 epochs")
    other_seed_of_mine = Row("resnet20-gtsrb", "0.5x", L1, "usual", "3 epochs", seed=1)
    ours = {mine.name: result(mine)}
    theirs = {row.name: result(row) for row in (shared, other, other_seed_of_mine)}
    theirs[elsewhere.name] = result(elsewhere, environment=ENVIRONMENT | {"processor": "Xeon"})
    files = {"front.json": {"rows": ours}, "reconstruction.json": {"rows": theirs}}
    monkeypatch.setattr(front_rows, "read_result", files.get)
    assert stored_rows().keys() == {mine.name, shared.name}


def test_the_front_are_the_points_that_no_other_beats():
    points = [point(0.6, 90), point(0.2, 50), point(0.4, 80), point(0.5, 70), point(0.6, 85), point(0.4, 79)]
    assert [(one.latency.value, one.accuracy.value) for one in undominated(points)] == [(0.2, 50), (0.4, 80), (0.6, 90)]


def test_a_point_is_held_against_the_line_between_ours():
    ours = point(0.2, 80), point(0.6, 90)
    assert side(point(0.4, 86, (L1, "usual")), *ours) == ("above", 1.0)
    assert side(point(0.4, 85, (L1, "usual")), *ours) == ("level", 0.0)
    assert side(point(0.4, 84, (L1, "usual")), *ours) == ("below", -1.0)
    assert side(point(0.8, 96, (L1, "usual")), *ours) == ("above", 1.0)  # the original is at (1, 100)
    assert side(point(0.1, 10, (L1, "usual")), *ours) == ("faster", 0.0)
    assert compare(point(0.4, 86), {}, ORIGINAL) is None


def test_intervals_count():
    # At 0.4 our line is at 85 and its upper bound at 86; 0.02 further left the bound is half a point higher: 86.5.
    ours = point(0.2, 80, error=1, drift=0.02), point(0.6, 90, error=1, drift=0.02)
    assert side(point(0.4, 86.6, (L1, "usual")), *ours) == ("above", 1.6)
    assert side(point(0.4, 86.4, (L1, "usual")), *ours) == ("level", 1.4)
    assert side(point(0.4, 83.6, (L1, "usual")), *ours) == ("level", -1.4)
    assert side(point(0.4, 83.4, (L1, "usual")), *ours) == ("below", -1.6)
    # The other's intervals count as well: one point of accuracy, and 0.04 in latency, which is another point.
    assert side(point(0.4, 88.4, (L1, "usual"), error=1, drift=0.04), *ours) == ("level", 3.4)
    assert side(point(0.4, 88.6, (L1, "usual"), error=1, drift=0.04), *ours) == ("above", 3.6)


def test_points_have_wilsons_interval_and_the_mean_of_the_seeds():
    results = trained("ours", "gentle", "0.5x", 0.48, 0.8) | trained("ours", "gentle", "0.5x", 0.48, 1.0, seed=1)
    ((way, (one,)),) = points_of(results.values()).items()
    assert (way, one.budget, one.seeds) == (("ours", "gentle"), "0.5x", 2)
    assert one.latency == Interval(0.48, 0.47, 0.49)
    # 0.9 on 400 images: (0.9 + z2 / 2 +- z * sqrt(0.09 / 400 + z2 / 4 / 400)) / (1 + z2), z2 = 1.96 ** 2 / 400.
    assert one.accuracy.value == pytest.approx(90)
    assert (one.accuracy.low, one.accuracy.high) == pytest.approx((86.67, 92.58), abs=0.01)


def test_what_was_not_solved_again_is_judged_untrained_with_new_statistics():
    rows = [Row("resnet20-gtsrb", "0.5x", pruning, WAYS[pruning][0], "none") for pruning in ("ours", L1)]
    points = points_of([result(row) for row in rows])
    assert points["ours", "gentle"][0].accuracy.value == pytest.approx(90)
    assert points[L1, "usual"][0].accuracy.value == pytest.approx(70)


def made_up():
    unmet = Row("resnet20-gtsrb", "0.2x", L1, "usual", "3 epochs")
    return {
        **trained("ours", "gentle", "0.8x", 0.78, 0.98, images=4000),
        **trained("ours", "gentle", "0.5x", 0.48, 0.9, images=4000),
        **trained("ours", "gentle", "0.2x", 0.19, 0.8, images=4000),
        **trained(L1, "usual", "0.5x", 0.41, 0.95, images=4000),
        **trained(L1, "gentle", "0.5x", 0.41, 0.5, images=4000),
        unmet.name: asdict(unmet) | {"unmet": "not met: 0.31x at best", "environment": ENVIRONMENT},
    }


def test_the_page_says_where_another_method_is_above_ours():
    text = front_page.page(made_up())
    # At 0.41 our line is at 80 + 10 * 0.22 / 0.29 = 87.59.
    assert (
        "- At 0.5x (0.410x measured), after 3 epochs, torch-pruning L1, usual recipe, is above ours by 7.4 points."
        in text
    )
    assert "Points of other methods: 1 above, 0 level, 1 below, 0 faster. Our front lacks 0.65x, 0.35x." in text
    assert "torch-pruning L1 at 0.2x: not met: 0.31x at best." in text
    assert "AMD EPYC, 2 cores; PyTorch 2.14; 2026-11-25" in text
    assert "| ResNet-20, speed limits of GTSRB | 0 of 50 | 5 of 17 | - |" in text


def test_a_cell_holds_accuracy_and_latency_with_their_intervals():
    (line,) = [
        line for line in front_page.page(made_up()).splitlines() if line.startswith("| torch-pruning L1 | usual")
    ]
    cell = "95.00% (94.28 to 95.63)<br>0.410x (0.400 to 0.420)"
    assert line == f"| torch-pruning L1 | usual | - | - | {cell} | - | not met |"


def test_a_picture_shows_every_point_and_its_bars():
    ((name, drawn),) = front_page.pictures(made_up()).items()
    assert name == "front_resnet20-gtsrb_3_epochs.svg"
    root = ElementTree.fromstring(drawn)
    kinds = [element.get("class") or "" for element in root.iter("{http://www.w3.org/2000/svg}path")]
    assert sum(kind.startswith("bars") for kind in kinds) == 5
    assert [kind for kind in kinds if kind.startswith("way")].count("way w0 ours") == 2  # one of them in the legend
    assert "way w2 gentle" in kinds
    assert "prefers-color-scheme:dark" in drawn
    # The original is at 1x on an axis up to 1.04: 52 + 588 / 1.04.
    assert re.search(r'<circle class="soft" cx="617.4"', drawn)


def test_what_is_too_little_for_a_picture_has_none():
    assert front_page.pictures(trained("ours", "gentle", "0.5x", 0.48, 0.9)) == {}
    unmet = {name: row for name, row in made_up().items() if "unmet" in row}
    assert front_page.pictures(unmet) == {}
    assert original_of(unmet.values()) is None
    assert "not met: 0.31x at best" in front_page.page(unmet)


def test_page_and_pictures_are_made_from_the_stored_rows():
    stored = stored_rows()
    assert front_page.PAGE.read_text(encoding="utf-8") == front_page.page(stored)
    drawn = front_page.pictures(stored)
    assert {path.name for path in front_page.PAGE.parent.glob("front_*.svg")} == drawn.keys()
    for name, picture in drawn.items():
        assert (front_page.PAGE.parent / name).read_text(encoding="utf-8") == picture


def folders(work):
    return argparse.Namespace(work=work, weights=work, gtsrb=work, cifar10=work, photographs=work)


def test_a_budget_that_was_missed_is_not_tried_again(tmp_path, monkeypatch):
    tried = []

    def missing(row, args):
        tried.append(row.name)
        raise MissedError("not met: 0.31x at best")

    monkeypatch.setattr(reconstruction, "run_row", missing)
    rows = [Row("resnet20-gtsrb", "0.2x", L1, "usual", training) for training in ("none", "3 epochs")]
    for row in rows:
        front.run_row(row, folders(tmp_path))
        found = json.loads((tmp_path / f"{row.name}.json").read_text())
        assert (found["unmet"], found["training"]) == ("not met: 0.31x at best", row.training)
    assert tried == [rows[0].name]


@pytest.fixture
def briefly(tiny, monkeypatch):
    """Make the tiny classifier a task and time it only briefly."""
    monkeypatch.setitem(CASES, "tiny", Case("Tiny", "tests.tiny:TinyNet", "tiny.safetensors", "cifar10", (), size=16))
    moment = load_latency_protocol(str(tiny / "moment.toml"))
    monkeypatch.setattr(peers, "load_latency_protocol", lambda name: moment)
    monkeypatch.setattr(peers, "STEP", 0.45)
    monkeypatch.setattr(reconstruction, "WIDEST_INTERVAL", math.inf)
    return argparse.Namespace(work=tiny / "rows", weights=tiny, cifar10=tiny / "data")


@pytest.mark.slow
def test_a_row_is_pruned_timed_and_judged(briefly):
    row = Row("tiny", "900ms", "torch-pruning Hessian", "usual", "none")
    front.run_row(row, briefly)
    found = json.loads((briefly.work / f"{row.name}.json").read_text())
    low, high = found["latency_ratio_ci95"]
    assert low <= found["latency_ratio"] <= high
    assert found["test_images"] == 24
    assert 0 < found["macs_share"] <= 1
    assert found["versions"]["torch-pruning"] == version("torch-pruning")


@pytest.mark.slow
def test_a_row_says_that_its_budget_cannot_be_met(briefly):
    row = Row("tiny", "0.1us", "torch-pruning random", "usual", "none")
    front.run_row(row, briefly)
    found = json.loads((briefly.work / f"{row.name}.json").read_text())
    assert re.fullmatch(r"not met: \d\.\d\dx at best", found["unmet"])
