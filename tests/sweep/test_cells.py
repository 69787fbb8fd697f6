"""The cells of a sweep: names, settings, and errors that are raised before any of them starts."""

import pytest

from catro_deploy.cli.work import own_settings
from catro_deploy.errors import BudgetError, DataError, RunFolderError, SettingsError, TargetError
from catro_deploy.files import write_text
from catro_deploy.pipeline import STAGES
from catro_deploy.progress import Silent
from catro_deploy.sweep.cells import make_cells, require_unchanged
from catro_deploy.sweep.matrix import load_matrix
from catro_deploy.sweep.steps import STEPS
from catro_deploy.transports.registry import Device, add_device


def cells_of(folder, config=None, **axes):
    matrix = load_matrix(None, axes)
    return make_cells(matrix, lambda asked: own_settings(config, dict(asked)), folder / "sweep", Silent())


def test_the_steps_of_a_cell_are_all_stages_in_their_order():
    assert [name for step in STEPS for name in step.stages] == [stage.name for stage in STAGES]


def test_each_cell_has_a_name_settings_and_a_folder(tiny):
    budgets = ["0.5x", "50%flops"]
    cells = cells_of(tiny, targets=["x86-cpu"], classes=["across,down", "all"], budgets=budgets, precisions=["int8"])
    assert [cell.name for cell in cells] == [
        "x86-cpu-across+down-0.5x-int8",
        "x86-cpu-across+down-50pct-flops-int8",
        "x86-cpu-all-0.5x-int8",
        "x86-cpu-all-50pct-flops-int8",
    ]
    assert [cell.run.path.name for cell in cells] == [cell.name for cell in cells]
    first = cells[0].settings
    assert (first.prune.classes, str(first.prune.budget), first.quantize.precision) == (
        ["across", "down"],
        "0.5x",
        "int8",
    )
    assert first.data.size == (16, 16)


def test_what_no_axis_says_comes_from_the_settings(tiny):
    (cell,) = cells_of(tiny)
    assert (cell.name, cell.target, cell.group, cell.budget) == (
        "x86-cpu-all-50pct-flops",
        "x86-cpu",
        "all",
        "50%flops",
    )


def test_a_target_may_be_a_device_by_its_name(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))
    add_device(Device(name="board", ssh="me@board", target="arm-cpu"))
    here, there = cells_of(tiny, targets=["x86-cpu", "board"])
    assert (here.settings.prune.target, here.settings.prune.device) == ("x86-cpu", "")
    assert (there.settings.prune.target, there.settings.prune.device) == ("arm-cpu", "board")
    assert there.name == "board-all-50pct-flops"


@pytest.mark.parametrize(
    ("axes", "error", "said"),
    [
        ({"targets": ["x86-cqu"]}, TargetError, "There is no target 'x86-cqu'"),
        ({"budgets": ["half"]}, BudgetError, "half"),
        ({"precisions": ["int4"]}, SettingsError, "quantize.precision"),
        ({"classes": ["across,dwon"]}, DataError, "x86-cpu-across+dwon-50pct-flops: There is no class 'dwon'"),
        ({"budgets": ["0.5x", "0.50x"]}, SettingsError, "Two cells are the same run: x86-cpu, all, 0.5x"),
        ({"classes": ["across,down", "across+down"]}, SettingsError, "Two groups of classes would be called"),
        ({"classes": ["across down", "across_down"]}, SettingsError, "Two cells would be called x86-cpu-across_down"),
        ({"budgets": ["auto"]}, SettingsError, "x86-cpu-all-auto: The budget auto is searched"),
        ({"targets": ["jetson-orin"], "precisions": ["int8"]}, TargetError, "cannot be reached from here"),
    ],
)
def test_mistakes_are_found_before_anything_runs(tiny, axes, error, said):
    with pytest.raises(error) as raised:
        cells_of(tiny, **axes)
    assert said in raised.value.problem
    assert not (tiny / "sweep").exists()


def test_two_cells_may_not_share_a_folder_by_a_link(tiny):
    folder = tiny / "sweep"
    (folder / "x86-cpu-all-0.5x").mkdir(parents=True)
    (folder / "x86-cpu-all-0.3x").symlink_to("x86-cpu-all-0.5x")
    with pytest.raises(RunFolderError, match=r"\bx86-cpu-all-0\.5x\b.*\bx86-cpu-all-0\.3x\b"):
        cells_of(tiny, budgets=["0.5x", "0.3x"])


def test_cells_started_with_other_settings_are_named_with_what_changed(tiny):
    cells = cells_of(tiny, budgets=["0.5x", "0.3x"])
    write_text(cells[0].run.settings, cells[0].text)
    require_unchanged(cells, tiny)
    write_text(tiny / "catro.toml", (tiny / "catro.toml").read_text().replace("epochs = 2", "epochs = 7"))
    with pytest.raises(SettingsError) as raised:
        require_unchanged(cells_of(tiny, budgets=["0.5x", "0.3x"]), tiny)
    assert "x86-cpu-all-0.5x in" in raised.value.problem
    assert "finetune.epochs: 2 -> 7" in raised.value.problem
    assert "0.3x" not in raised.value.problem
    assert "--replace" in raised.value.hint
