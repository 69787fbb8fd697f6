"""Runs with a searched budget, and which of their stages run again."""

import json

import pytest

from catro_deploy.errors import RunFolderError, SettingsError, TargetError
from catro_deploy.files import write_text
from catro_deploy.pipeline import run_folder_name, with_search
from catro_deploy.settings import load_settings
from catro_deploy.stages.preconditions import check_settings
from tests.pipeline.driving import ALL, EVERY, go

LOSS = {"prune": {"budget": "auto"}, "verify": {"max_drop": 5.0}}


def test_a_named_budget_is_never_searched(run):
    assert go(run, EVERY, verify={"max_drop": 5.0}) == list(ALL)
    assert not run.search.exists()


def test_the_pruning_works_with_the_budget_that_was_searched(run):
    assert go(run, EVERY, **LOSS) == list(EVERY)
    assert json.loads(run.plan.read_text())["budget"] == "0.354x"
    assert load_settings(run.settings, {}).prune.budget == "auto"
    assert go(run, EVERY, **LOSS) == []
    assert go(run, ["finetune"], **LOSS, finetune={"epochs": 3}) == ["finetune"]


def test_another_loss_is_searched_again_and_what_it_found_is_pruned(run):
    go(run, EVERY, **LOSS)
    assert go(run, EVERY, **LOSS | {"verify": {"max_drop": 6.0}}) == list(EVERY)
    assert go(run, EVERY, **LOSS | {"verify": {"max_drop": 6.0, "tolerance": 0.1}}) == ["verify", "report"]


def test_after_a_search_a_named_budget_is_pruned_as_it_is(run):
    go(run, EVERY, **LOSS)
    assert go(run, EVERY, prune={"budget": "0.6x"}) == list(ALL)
    assert json.loads(run.plan.read_text())["budget"] == "0.6x"


def test_without_a_search_its_budget_is_refused_and_the_command_named(run):
    with pytest.raises(RunFolderError, match=rf"\bsearch\b[\s\S]*catro-deploy run --run {run.path}"):
        go(run, ["prune"], **LOSS)
    go(run, EVERY, **LOSS)
    run.search.unlink()
    with pytest.raises(RunFolderError, match=f"catro-deploy run --run {run.path}"):
        go(run, ["finetune"], **LOSS)


def test_force_searches_from_the_start(run):
    go(run, EVERY, **LOSS)
    write_text(run.searched / "a1b2" / "point.json", "{}")
    go(run, EVERY, **LOSS)
    assert run.searched.is_dir()
    assert go(run, EVERY, force=True, **LOSS) == list(EVERY)
    assert not run.searched.exists()


def test_who_names_no_budget_and_allows_a_loss_has_it_searched():
    def budget(**flags):
        return str(with_search(load_settings(None, flags)).prune.budget)

    loss = {"max_drop": 0.5}
    assert budget(verify=loss) == "auto"
    assert budget(verify=loss, prune={"seed": 3}) == "auto"
    assert budget() == "0.5x"
    assert budget(verify=loss, prune={"budget": "0.5x"}) == "0.5x"
    assert budget(verify=loss, prune={"target": "jetson-orin"}) == "0.5x"


def test_a_search_may_change_the_precision_unless_one_is_named():
    def precision(**flags):
        return with_search(
            load_settings(None, flags | {"search": {"enabled": True} | flags.get("search", {})})
        ).quantize.precision

    assert precision() == "auto"
    assert precision(quantize={"precision": "fp32"}) == "fp32"
    assert precision(search={"knobs": ["depth"]}) == "target"
    assert precision(prune={"target": "jetson-orin"}) == "target"


def test_a_search_that_cannot_be_measured_is_refused_before_anything_runs(run):
    searched = {"search": {"enabled": True}}
    with pytest.raises(TargetError, match="jetson-orin"):
        check_settings(load_settings(None, searched | {"prune": {"target": "jetson-orin"}}))
    with pytest.raises(SettingsError, match="50%flops"):
        check_settings(load_settings(None, searched | {"prune": {"budget": "50%flops"}}))


def test_a_search_needs_a_loss_and_a_target_within_reach():
    check_settings(load_settings(None, LOSS))
    with pytest.raises(SettingsError, match="--max-drop"):
        check_settings(load_settings(None, {"prune": {"budget": "auto"}}))
    with pytest.raises(TargetError, match=r"\bauto\b.*\bjetson-orin\b[\s\S]*--budget 0\.5x"):
        check_settings(load_settings(None, LOSS | {"prune": {"budget": "auto", "target": "jetson-orin"}}))
    assert run_folder_name(load_settings(None, LOSS)).startswith("x86-cpu-all-auto-")
