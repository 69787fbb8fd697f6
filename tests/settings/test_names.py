"""Lists of names, files with class names, and image sizes, in settings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.errors import SettingsError
from catro_deploy.settings import DataSettings, load_settings, settings_text
from catro_deploy.settings.names import split_names
from catro_deploy.toml import parse_toml

sides = st.integers(1, 2**16)


def loaded(folder, text):
    (folder / "catro.toml").write_text(text)
    return load_settings(folder / "catro.toml", {})


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("names.txt", "cat\n\n  dog \n", ["cat", "dog"]),
        ("names.json", json.dumps({"1": "dog", "0": "cat"}), ["cat", "dog"]),
        ("names.json", json.dumps(["cat", "dog"]), ["cat", "dog"]),
        ("names.json", json.dumps({"0": ["n1", "cat"], "1": ["n2", "dog"]}), [("n1", "cat"), ("n2", "dog")]),
    ],
    ids=["lines", "indices", "list", "ids"],
)
def test_classes_may_be_in_a_file_next_to_the_settings(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    settings = loaded(tmp_path, f'[model]\nclasses = "{name}"\n')
    assert settings.model.classes == expected
    again = load_settings(None, parse_toml(settings_text(settings)))
    assert again.model.classes == expected


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("names.txt", "cat\ncat\n", "'cat' more than once"),
        ("names.json", '{"0": "cat", "2": "dog"}', "none for index 1"),
        ("names.json", "{", "is not JSON"),
        ("names.json", '{"0": 1}', "contains no class names"),
        ("gone.txt", None, "cannot be read"),
    ],
)
def test_files_that_name_no_classes(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, f'[model]\nclasses = "{name}"\n')
    assert said in refused.value.problem


def test_labels_may_be_in_a_file_of_two_columns(tmp_path):
    (tmp_path / "labels.csv").write_text('tabby,281\npuppy, "dog, a pet"\n')
    assert loaded(tmp_path, '[data]\nlabels = "labels.csv"\n').data.labels == {"tabby": "281", "puppy": "dog, a pet"}
    (tmp_path / "labels.csv").write_text("my cat\ttiger cat, big\n")
    assert loaded(tmp_path, '[data]\nlabels = "labels.csv"\n').data.labels == {"my cat": "tiger cat, big"}
    assert loaded(tmp_path, "[data]\nlabels = {tabby = 281}\n").data.labels == {"tabby": 281}


@pytest.mark.parametrize(
    ("content", "said"), [("a,1\na,2\n", "'a' 2 times"), ("a\n", "two columns"), ("a,\n", "two col")]
)
def test_files_that_map_no_labels(tmp_path, content, said):
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, '[data]\nlabels = "labels.csv"\n')
    assert said in refused.value.problem


@given(height=sides, width=sides)
def test_a_size_is_a_side_or_height_and_width(height, width):
    for written in (f"{height}x{width}", [height, width], f" {height} x {width} "):
        assert DataSettings.model_validate({"size": written}).size == (height, width)
    assert DataSettings.model_validate({"size": height}).size == (height, height)
    settings = DataSettings.model_validate({"size": [height, width]})
    assert DataSettings.model_validate(settings.model_dump()) == settings


@pytest.mark.parametrize("size", [0, "0x5", 2**20])
def test_a_size_out_of_range_is_named_as_it_was_written(size):
    with pytest.raises(SettingsError, match=f"a size is at least 1 and at most 65536, not {size}"):
        load_settings(None, {"prune": {"input_size": size}})


@pytest.mark.parametrize("size", [0, -1, "0x5", "ax5", [1, 2, 3], True, 1.5, "", 2**20])
def test_what_is_no_size(size):
    with pytest.raises(SettingsError):
        load_settings(None, {"data": {"size": size}})


def test_a_crop_cannot_be_larger_than_what_it_is_cut_from():
    assert DataSettings.model_validate({"size": "160x224", "resize": 160}).resize == 160
    with pytest.raises(SettingsError):
        load_settings(None, {"data": {"size": "160x224", "resize": 159}})
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {"data": {"size": "160x224", "resize": "160x223"}})
    assert "smaller than size" in refused.value.problem


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["speed_limits"], ["speed_limits"]),
        (["1,2", "5"], ["1", "2", "5"]),
        ([" a b , c,"], ["a b", "c"]),
        (
            ['"tench, Tinca tinca" , goldfish', '12" disc,b', '"a'],
            ["tench, Tinca tinca", "goldfish", '12" disc', "b", '"a'],
        ),
        (["0", "007", "-1"], ["0", "007", "-1"]),
        ([], []),
    ],
)
def test_names_are_split(texts, names):
    assert split_names(texts) == names


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_commas_and_repetition_mean_the_same(indices):
    assert split_names([",".join(map(str, indices))]) == split_names(list(map(str, indices))) == list(map(str, indices))
