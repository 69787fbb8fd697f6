"""Which settings the variants of a pruning change."""

import pytest

from catro_deploy.records import Speedup, Variant
from catro_deploy.settings import load_settings
from catro_deploy.stages.decided import changed
from catro_deploy.stages.ways import Available, ways, with_budget


def settings_of(**sections):
    return load_settings(None, {"prune": {"budget": "0.5x"}} | sections)


def ways_of(labelled=True, sizes=(), targets=None, **sections):
    return ways(settings_of(**sections), Available(sizes, targets or {}), labelled=labelled)


def test_all_combinations_but_a_criterion_without_classes_by_class_separation():
    found = ways_of()
    # (catro, measured), (catro, scatter), (obs, measured); each with and without depth, in float and in int8.
    assert len(found) == 3 * 2 * 2
    assert len({tuple(sorted(one.items())) for one in found}) == len(found)
    assert not any(one.get("prune.criterion") == "obs" and one.get("prune.worth") == "scatter" for one in found)


def test_the_first_changes_nothing_and_few_changes_come_before_many():
    found = ways_of()
    assert found[0] == {}
    assert [len(one) for one in found] == sorted(map(len, found))


def test_precision_is_tried_first_and_then_sizes():
    found = ways_of(sizes=[(28, 28), (24, 24)])
    assert found[1:4] == [{"quantize.precision": "int8"}, {"prune.input_size": "28"}, {"prune.input_size": "24"}]


def test_without_labels_nothing_that_compares_classes_changes():
    places = set().union(*ways_of(labelled=False))
    assert places == {"prune.depth", "quantize.precision"}


@pytest.mark.parametrize(
    ("sections", "places"),
    [
        ({"search": {"knobs": ["depth"]}}, {"prune.depth"}),
        ({"search": {"knobs": ["precision"]}, "quantize": {"precision": "int8"}}, set()),  # a named precision stays
        ({"search": {"knobs": ["precision"]}, "quantize": {"precision": "auto"}}, {"quantize.precision"}),
        ({"search": {"knobs": ["worth", "criterion"]}, "prune": {"budget": "0.5x", "reconstruct": False}}, set()),
    ],
)
def test_only_knobs_that_are_on_change(sections, places):
    assert set().union(*ways_of(**sections)) == places


def test_the_alternative_is_what_the_settings_do_not_have():
    pruning = {"budget": "0.5x", "criterion": "obs", "depth": "never"}
    found = ways_of(prune=pruning, search={"knobs": ["criterion", "depth"]})
    assert [one for one in found if len(one) == 1] == [{"prune.depth": "auto"}, {"prune.criterion": "catro"}]


def test_each_combination_is_tried_at_each_input_size():
    found = ways_of(sizes=[(28, 28), (24, 20)])
    assert len(found) == 3 * 2 * 2 * 3
    assert {one.get("prune.input_size") for one in found} == {None, "28", "24x20"}


@pytest.mark.parametrize(
    "sections", [{"search": {"knobs": ["depth"]}}, {"prune": {"budget": "0.5x", "input_size": 24}}]
)
def test_a_size_that_is_off_or_named_stays(sections):
    assert "prune.input_size" not in set().union(*ways_of(sizes=[(28, 28)], **sections))


def test_a_size_becomes_a_setting():
    settings = changed(load_settings(None, {}), {"prune.input_size": "24x20"})
    assert settings.prune.input_size == (24, 20)
    assert settings.prune.model_dump(mode="json")["input_size"] == "24x20"


def test_a_record_holds_sizes_alone_as_input_sizes():
    assert Variant({"prune.input_size": "24x20"}).name == "input size 24x20"
    for wrong in ("", "0", "24x", "24 x 20", "large"):
        with pytest.raises(ValueError, match=r"cannot set prune\.input_size"):
            Variant({"prune.input_size": wrong})


OPENVINO = {"x86-cpu-openvino": Speedup(1.25, (1.2, 1.3))}


def test_runtime_and_temperature_change_only_if_they_are_named():
    assert not {"prune.target", "prune.temperature"} & set().union(*ways_of(targets=OPENVINO))
    found = ways_of(targets=OPENVINO, search={"knobs": ["runtime", "precision"]})
    assert found == [
        {},
        {"quantize.precision": "int8"},
        {"prune.target": "x86-cpu-openvino"},
        {"prune.target": "x86-cpu-openvino", "quantize.precision": "int8"},
    ]


def test_a_temperature_is_one_of_the_class_separation():
    found = ways_of(search={"knobs": ["temperature", "worth"]}, prune={"budget": "0.5x", "temperature": 3.0})
    assert {one["prune.temperature"] for one in found if "prune.temperature" in one} == {"1.5", "6"}
    assert all(one["prune.worth"] == "scatter" for one in found if "prune.temperature" in one)
    by_scatter = {"budget": "0.5x", "worth": "scatter"}
    assert {} in ways_of(search={"knobs": ["temperature"]}, prune=by_scatter)
    assert {"prune.temperature": "2"} in ways_of(search={"knobs": ["temperature"]}, prune=by_scatter)


@pytest.mark.parametrize(
    ("budget", "there"),
    [
        ("0.5x", "0.625x"),  # there the original takes 80% of its latency: 62.5% of 80% is 50%
        ("0.9x", "1x"),  # it need not be pruned
        ("400us", "400us"),
        ("0.4x, 0.2x@p99, 50%flops", "0.5x, 0.25x@p99, 50%flops"),
    ],
)
def test_in_another_runtime_the_budget_is_the_same_latency(budget, there):
    settings, available = settings_of(prune={"budget": budget}), Available((), OPENVINO)
    changes = {"prune.target": "x86-cpu-openvino"}
    assert with_budget(changes, settings, available) == {**changes, "prune.budget": there}
    assert with_budget({}, settings, available) == {}
    assert changed(settings, with_budget(changes, settings, available)).prune.target == "x86-cpu-openvino"


def test_a_record_holds_targets_and_temperatures_alone():
    assert Variant({"prune.target": "x86-cpu-openvino", "prune.temperature": "0.5"}).name == (
        "target x86-cpu-openvino, temperature 0.5"
    )
    for place, wrong in (("prune.target", "../there"), ("prune.temperature", "0.0"), ("prune.temperature", "-1")):
        with pytest.raises(ValueError, match="cannot set"):
            Variant({place: wrong})
