"""Mapping the classes of the data to the classes of a network."""

import re
import tomllib

import numpy as np
import pytest
import torch

from catro_deploy.data.base import Dataset, MemorySplit
from catro_deploy.data.labels import relabelled
from catro_deploy.errors import DataError

NAMES = ("tench", "goldfish", "great white shark", "7", "tiger cat")
IDS = {"n01": 0, "n02": 1, "n03": 2, "n04": 3, "n05": 4}


def dataset(*classes, groups=None):
    labels = np.arange(2 * len(classes)) % len(classes)
    split = MemorySplit(torch.arange(len(labels), dtype=torch.uint8).reshape(-1, 1, 1, 1), labels)
    return Dataset("photos", classes, groups or {}, split, split, split)


@pytest.mark.parametrize(
    ("own", "index"),
    [("tench", 0), ("n02", 1), ("great_white-Shark", 2), ("4", 4), ("7", 3)],
    ids=["name", "id", "name written otherwise", "index", "name before index"],
)
def test_a_class_is_found_by(own, index):
    found = relabelled(dataset(own, "tiger cat" if index != 4 else "tench"), NAMES, IDS, {})
    assert found.train.labels[0] == index
    assert found.classes == NAMES


def test_labels_stand_over_names_and_renamed_classes_become_groups():
    found = relabelled(dataset("tench", "mine"), NAMES, IDS, {"mine": "n05", "tench": 2})
    np.testing.assert_array_equal(found.validation.labels, [2, 4, 2, 4])
    assert found.groups == {"tench": (2,), "mine": (4,)}
    assert found.test.images([1, 2]).flatten().tolist() == [1, 2]


def test_groups_keep_their_members():
    found = relabelled(dataset("goldfish", "tench", groups={"fish": (0, 1)}), NAMES, IDS, {})
    assert found.groups == {"fish": (1, 0)}


def test_unknown_classes_are_named_with_what_was_probably_meant():
    with pytest.raises(DataError) as refused:
        relabelled(dataset("tensch", "goldfish", "zebra"), NAMES, IDS, {})
    assert "tensch: Did you mean tench?" in refused.value.problem
    assert "zebra" in refused.value.problem
    assert "goldfish" not in refused.value.problem
    assert 'labels = {"tensch" = ' in refused.value.hint


def test_the_hint_is_valid_toml_for_any_name():
    name = 'c\' "q" #,x'
    with pytest.raises(DataError) as refused:
        relabelled(dataset(name), NAMES, IDS, {})
    line = re.search(r"labels = \{.*?\}", refused.value.hint)[0]
    assert tomllib.loads(line) == {"labels": {name: NAMES[0]}}


def test_a_word_of_a_name_is_suggested_before_similar_spellings():
    with pytest.raises(DataError) as refused:
        relabelled(dataset("springer", "tench"), ("printer", "tench", "English springer", "Welsh springer"), {}, {})
    assert "springer: Did you mean english springer or welsh springer?" in refused.value.problem


def test_an_id_without_the_list_of_ids_asks_for_timm():
    with pytest.raises(DataError) as refused:
        relabelled(dataset("n01440764", "tench"), NAMES, {}, {})
    assert "timm" in refused.value.hint


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"a": 5, "b": 0}, "a, given as 5: its indices are 0 to 4"),
        ({"a": -1, "b": 0}, "a, given as -1"),
        ({"a": "tench", "b": "n01"}, "'a' and 'b' of photos are the same class"),
        ({"a": 0, "b": 1, "c": 2}, "'c', which photos does not have"),
    ],
    ids=["index too large", "negative index", "twice the same", "no such folder"],
)
def test_labels_that_do_not_fit(labels, said):
    with pytest.raises(DataError) as refused:
        relabelled(dataset("a", "b"), NAMES, IDS, labels)
    assert said in refused.value.problem
