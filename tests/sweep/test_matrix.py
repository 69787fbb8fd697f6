"""The matrix of a sweep, from sweep.toml and flags."""

import pytest

from catro_deploy.errors import SettingsError
from catro_deploy.sweep.matrix import load_matrix


def written(tmp_path, text):
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    return file


def axes(matrix):
    return [(one.target, one.group, one.budget, one.precision) for one in matrix.combinations]


def test_every_combination_is_a_cell_in_the_order_of_the_axes(tmp_path):
    file = written(tmp_path, 'targets = ["a", "b"]\nbudgets = ["0.5x", "0.3x"]\n')
    assert axes(load_matrix(file, {})) == [
        ("a", None, "0.5x", None),
        ("a", None, "0.3x", None),
        ("b", None, "0.5x", None),
        ("b", None, "0.3x", None),
    ]


def test_an_axis_that_a_flag_names_is_that_flags_alone(tmp_path):
    file = written(tmp_path, 'targets = ["a", "b"]\nbudgets = ["0.5x"]\ncpus = 2\n')
    matrix = load_matrix(file, {"targets": ["c"], "budgets": ()})
    assert axes(matrix) == [("c", None, "0.5x", None)]
    assert matrix.cpus == 2


def test_without_axes_there_is_one_cell():
    assert axes(load_matrix(None, {})) == [(None, None, None, None)]


def test_groups_of_classes_are_named_by_their_classes_or_as_the_table_says(tmp_path):
    flags = {"classes": ["speed_limits", "1,2", "all", "a_long_name_of_a_class,another_long_name,third"]}
    found = load_matrix(None, flags).combinations
    assert [one.group for one in found] == ["speed_limits", "1+2", "all", "a_long_name_of_a_class+2"]
    assert [one.classes for one in found][:3] == [("speed_limits",), ("1", "2"), ()]

    (quoted,) = load_matrix(None, {"classes": ['"tench, Tinca tinca",goldfish']}).combinations
    assert quoted.classes == ("tench, Tinca tinca", "goldfish")

    file = written(tmp_path, '[classes]\ncity = ["stop", 3]\nevery = "all"\n')
    found = load_matrix(file, {}).combinations
    assert [(one.group, one.classes) for one in found] == [("city", ("stop", 3)), ("every", ())]


def test_excluded_combinations_are_left_out(tmp_path):
    text = 'targets = ["a", "b"]\nprecisions = ["fp32", "int8"]\n[[exclude]]\ntarget = "b"\nprecision = "fp32"\n'
    found = axes(load_matrix(written(tmp_path, text), {}))
    assert found == [("a", None, None, "fp32"), ("a", None, None, "int8"), ("b", None, None, "int8")]


def test_settings_of_all_cells_lie_where_the_file_says(tmp_path):
    file = written(tmp_path, 'config = "settings/catro.toml"\n')
    assert load_matrix(file, {}).config == tmp_path / "settings" / "catro.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget = ['0.5x']", "budget is not a key of a sweep. Did you mean budgets?"),
        ("epochs = 3", "epochs is not a key of a sweep. Settings of runs belong in catro.toml."),
        ("budgets = [0.5]", "budgets.0 = 0.5 does not fit"),
        ("budgets = ['0.5x', '0.5x']", "0.5x appears twice among the budgets"),
        ("classes = [['a', 'b'], 'a,b']", "Two groups of classes would be called 'a+b'"),
        ("targets = ['a']\n[[exclude]]\ntarget = 'b'", "[[exclude]] target = 'b' matches no cell"),
        ("targets = ['a']\n[[exclude]]\ntarget = 'a'", "The sweep has no cells"),
        ("[[exclude]]\n", "[[exclude]] (empty) matches no cell"),
        ("targets = ['a'\nbudgets = ['0.5x']", "cannot be read"),
    ],
)
def test_mistakes_are_explained(tmp_path, text, said):
    with pytest.raises(SettingsError) as raised:
        load_matrix(written(tmp_path, text), {})
    assert said in raised.value.problem
    assert raised.value.hint


def test_a_missing_file_is_explained(tmp_path):
    with pytest.raises(SettingsError, match=r"\bno .*/sweep\.toml"):
        load_matrix(tmp_path / "sweep.toml", {})
