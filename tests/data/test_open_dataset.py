import sys
from pathlib import Path

import pytest

from catro_deploy.data import Subset, open_dataset
from catro_deploy.errors import DataError, ModelError
from catro_deploy.settings import DataSettings

FACTORY = """
import numpy as np
import torch
from catro_deploy.data import Dataset, MemorySplit
from catro_deploy.errors import ModelError

def split(size, channels, labels=(0, 1, 1), dtype=torch.uint8):
    return MemorySplit(torch.zeros(len(labels), channels, *size, dtype=dtype), np.array(labels))

def good(settings, size, channels):
    part = split(size, channels)
    return Dataset("mine", ("cat", "dog"), {"pets": (0, 1)}, part, part, part)

def nothing(settings, size, channels):
    return None

def crashing(settings, size, channels):
    raise RuntimeError("no camera")

def speaking(settings, size, channels):
    raise ModelError("said so")

def wrong_size(settings, size, channels):
    return good(settings, (9, 9), channels)

def floats(settings, size, channels):
    part = split(size, channels, dtype=torch.float32)
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)

def labels_above(settings, size, channels):
    part = split(size, channels, labels=(0, 2))
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)

def empty(settings, size, channels):
    part = split(size, channels)
    return Dataset("mine", ("cat", "dog"), {}, part, part, split(size, channels, labels=()))

def unlabelled(settings, size, channels):
    part = split(size, channels, labels=(-1, -1))
    return Dataset("mine", (), {}, part, part, part)

def partly(settings, size, channels):
    part = split(size, channels)
    return Dataset("mine", ("cat", "dog"), {}, part, part, split(size, channels, labels=(-1, -1)))

def mixed(settings, size, channels):
    part = split(size, channels, labels=(-1, 0))
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)

def twins(settings, size, channels):
    part = split(size, channels)
    return Dataset("mine", ("cat", "cat"), {}, part, part, part)

def numbered(settings, size, channels):
    part = split(size, channels)
    return Dataset("mine", (0, 1), {}, part, part, part)

def ungrouped(settings, size, channels):
    part = split(size, channels)
    return Dataset("mine", ("cat", "dog"), None, part, part, part)

def short(settings, size, channels):
    part = split(size, channels)
    return Dataset("mine", ("cat", "dog"), {}, part, part, MemorySplit(part.pixels[:2], part.labels))

class Own:  # of three images; the ends are valid
    def __init__(self, answer):
        self.labels, self.answer = [0, 1, 1], answer

    def images(self, indices):
        return self.answer(indices)

def lists(settings, size, channels):
    part = Own(lambda indices: torch.zeros(len(indices), channels, *size, dtype=torch.uint8))
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)

def bytes_(settings, size, channels):
    part = MemorySplit(torch.zeros(3, channels, *size, dtype=torch.uint8), np.array([0, 1, 1], np.uint8))
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)

def only_first(settings, size, channels):
    part = Own(lambda indices: torch.zeros(1, channels, *size, dtype=torch.uint8))
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)

def later(settings, size, channels):
    types = {True: torch.float32, False: torch.uint8}
    part = Own(lambda indices: torch.zeros(len(indices), channels, *size, dtype=types[1 in indices]))
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)

def failing(settings, size, channels):
    pixels = {2: torch.zeros(2, channels, *size, dtype=torch.uint8)}
    part = Own(lambda indices: pixels[indices[-1]])
    return Dataset("mine", ("cat", "dog"), {}, part, part, part)
"""


@pytest.fixture
def factory_module(tmp_path, monkeypatch):
    """The name of a module in the working folder, which is unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("animals.py").write_text(FACTORY)
    yield "animals"
    sys.modules.pop("animals", None)


def test_a_factory_of_the_working_folder_is_called(factory_module):
    settings = DataSettings(name=f"{factory_module}:good", groups={"mine": ["dog", 0]})
    dataset = open_dataset(settings, (4, 6), 1)
    assert dataset.classes == ("cat", "dog")
    assert dataset.groups == {"pets": (0, 1), "mine": (1, 0)}
    assert dataset.test.images([2]).shape == (1, 1, 4, 6)


def test_a_factory_may_know_no_labels(factory_module):
    dataset = open_dataset(DataSettings(name=f"{factory_module}:unlabelled"), (4, 6), 1)
    assert (dataset.labelled, dataset.classes) == (False, ())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nothing", "NoneType"),
        ("crashing", "RuntimeError: no camera"),
        ("wrong_size", r"\(2, 3, 9, 9\).*\(2, 3, 4, 4\)"),
        ("floats", r"torch\.float32"),
        ("labels_above", r"\b0 to 2\b.*\b2 classes\b"),
        ("empty", r"\btest\b.*\(0,\)"),
        ("partly", "some splits"),
        ("mixed", r"-1 to 0\b.*\b2 classes\b"),
        ("twins", "same name"),
        ("numbered", r"\(0, 1\).*text"),
        ("ungrouped", "groups that are a NoneType"),
        ("short", "test split of 2 images with 3 labels"),
        ("only_first", r"\(1, 3, 4, 4\).*\(2, 3, 4, 4\)"),
    ],
)
def test_anything_else_says_what_is_expected(factory_module, name, problem):
    with pytest.raises(DataError, match=problem) as caught:
        open_dataset(DataSettings(name=f"{factory_module}:{name}"), (4, 4), 3)
    assert "size (height, width)" in caught.value.hint
    assert "must return a catro_deploy.data.Dataset" in caught.value.hint


def test_labels_of_a_factory_may_be_a_list(factory_module):
    dataset = open_dataset(DataSettings(name=f"{factory_module}:lists"), (4, 6), 1)
    assert Subset(dataset.train, (1,)).indices.tolist() == [1, 2]
    assert dataset.test.images([0, 1]).shape == (2, 1, 4, 6)


def test_labels_of_a_factory_may_be_unsigned(factory_module):
    labels = open_dataset(DataSettings(name=f"{factory_module}:bytes_"), (4, 6), 1).test.labels
    assert (labels.tolist(), labels.dtype) == ([0, 1, 1], "int64")


@pytest.mark.parametrize(("name", "problem"), [("later", r"torch\.float32.*uint8"), ("failing", "KeyError: 1")])
def test_images_of_a_factory_are_checked_whenever_they_are_read(factory_module, name, problem):
    split = open_dataset(DataSettings(name=f"{factory_module}:{name}"), (4, 4), 3).test
    with pytest.raises(DataError, match=rf"animals:{name}.*{problem}"):
        split.images([0, 1])


def test_where_the_module_has_no_such_function_those_that_it_has_are_named(factory_module):
    with pytest.raises(DataError, match=r"'absent'.*\banimals\b") as caught:
        open_dataset(DataSettings(name=f"{factory_module}:absent"), (4, 4), 3)
    assert "It has: " in caught.value.hint
    assert "good" in caught.value.hint
    assert "Dataset" not in caught.value.hint  # the module only imports it


def test_a_factory_may_raise_errors_of_the_tree(factory_module):
    with pytest.raises(ModelError, match="said so"):
        open_dataset(DataSettings(name=f"{factory_module}:speaking"), (4, 4), 3)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(DataError, match="'no_such_package'"):
        open_dataset(DataSettings(name="no_such_package.data:open"), (4, 4), 3)


def test_an_unknown_name_has_a_nearest():
    with pytest.raises(DataError, match=r"'gtsr'.*\bgtsrb\b[\s\S]*\bgtsrb, imagefolder, images, signs\b"):
        open_dataset(DataSettings(name="gtsr"), (32, 32), 3)


def test_two_channels_are_refused():
    with pytest.raises(DataError, match="2 channels"):
        open_dataset(DataSettings(), (32, 32), 2)


def test_groups_of_the_user_are_checked_and_win(factory_module):
    name = f"{factory_module}:good"
    assert open_dataset(DataSettings(name=name, groups={"pets": ["1"]}), (4, 4), 3).groups == {"pets": (1,)}
    with pytest.raises(DataError, match=r"\bpets\b.*'dig'.*\bdog\b"):
        open_dataset(DataSettings(name=name, groups={"pets": ["dig"]}), (4, 4), 3)
