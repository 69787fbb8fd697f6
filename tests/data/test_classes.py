import pytest

from catro_deploy.data import resolve_classes
from catro_deploy.data.classes import resolve_group
from catro_deploy.errors import DataError

CLASSES = ("stop", "yield", "speed_limit_30", "speed_limit_50", "7")
GROUPS = {"speed_limits": (2, 3), "named": ("yield", "stop"), "mixed": ("7", 0)}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], (0, 1, 2, 3, 4)),
        (["speed_limits"], (2, 3)),
        (["named"], (1, 0)),
        (["mixed"], (4, 0)),
        (["yield", "stop"], (1, 0)),
        ([3, 0], (3, 0)),
        (["3", "0"], (3, 0)),
        (["speed_limits", "stop", 1], (2, 3, 0, 1)),
        (["speed_limits", "speed_limit_30"], (2, 3)),
        (["speed_limit_50", "speed_limits"], (3, 2)),  # also in a group: counts once, at its first position
        (["7", 1], (4, 1)),  # a class name takes precedence over an index
    ],
)
def test_groups_names_and_indices_resolve_in_the_order_in_which_they_are_named(wanted, expected):
    assert resolve_classes(CLASSES, GROUPS, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "problem", "hint"),
    [
        (
            ["speed_limit"],
            "Did you mean speed_limits?",
            "Groups: speed_limits, named, mixed. Classes: stop, yield",
        ),
        (["yeild", "stop"], "no class 'yeild'. Did you mean yield?", "Classes:"),
        (["qqqq"], "no class 'qqqq'.", "Classes:"),
        ([5, 1], "no class 5", "0 to 4"),
        (["12", 1], "no class 12", "0 to 4"),
        ([-1, 1], "no class -1", "0 to 4"),
        (["stop"], "needs at least two classes, and there is only: stop", "--classes stop,yield"),
        (["stop", "yield", "0"], "The class stop is named twice.", "Name it once"),
        ([1, 1, 2], "The class yield is named twice.", "counted from 0"),
    ],
)
def test_what_is_not_there_is_named_with_what_is_near(wanted, problem, hint):
    with pytest.raises(DataError) as caught:
        resolve_classes(CLASSES, GROUPS, wanted)
    assert problem in caught.value.problem
    assert hint in caught.value.hint


def test_a_dataset_of_one_class_is_refused():
    with pytest.raises(DataError, match="only: stop"):
        resolve_classes(("stop",), {}, [])


def test_long_lists_of_classes_are_cut():
    with pytest.raises(DataError, match=r"\bc49\b.*\b950\b"):
        resolve_classes([f"c{i}" for i in range(1000)], {}, ["zzz"])


def test_a_group_keeps_the_order_of_its_members():
    assert resolve_group("mine", [3, "stop", "speed_limit_50", 1], CLASSES) == (3, 0, 1)


@pytest.mark.parametrize(("members", "problem"), [([], r"\bmine\b.*\bempty\b"), (["stopp"], r"\bmine\b.*\bstop\b")])
def test_a_group_must_name_classes(members, problem):
    with pytest.raises(DataError, match=problem):
        resolve_group("mine", members, CLASSES)


def test_names_that_contain_a_comma_are_written_in_quotes():
    classes = ("tench, Tinca tinca", "goldfish")
    with pytest.raises(DataError) as caught:
        resolve_classes(classes, {}, ["tench", "Tinca tinca"])
    assert """--classes '"tench, Tinca tinca"'""" in caught.value.hint
    with pytest.raises(DataError) as caught:
        resolve_classes(classes, {}, ["goldfish"])
    assert """--classes '"tench, Tinca tinca",goldfish'""" in caught.value.hint
