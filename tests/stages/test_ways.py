"""Which settings the variants of a pruning change."""

import pytest

from catro_deploy.settings import load_settings
from catro_deploy.stages.ways import ways


def ways_of(labelled=True, **sections):
    settings = load_settings(None, {"prune": {"budget": "0.5x"}} | sections)
    return ways(settings, labelled=labelled)


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


def test_without_labels_nothing_that_compares_classes_changes():
    places = set().union(*ways_of(labelled=False))
    assert places == {"prune.depth", "quantize.precision"}


@pytest.mark.parametrize(
    ("sections", "places"),
    [
        ({"search": {"knobs": ["depth"]}}, {"prune.depth"}),
        ({"search": {"knobs": ["precision"]}, "quantize": {"precision": "int8"}}, set()),  # named: it stays
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
