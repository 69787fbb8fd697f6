"""Several prunings to one budget; the one nearest to the original is taken."""

import re
import shutil

import pytest

from catro_deploy.budget import Budgets
from catro_deploy.errors import BudgetError, MissedError, SettingsError, TargetError
from catro_deploy.files import write_text
from catro_deploy.progress import Silent
from catro_deploy.reconstruction.readers import Readers
from catro_deploy.records import Bench, Plan, Runtimes, Variant, Variants
from catro_deploy.records.report import Report
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load, save
from catro_deploy.stages.decided import as_decided
from catro_deploy.stages.other_runtimes import at_equal_latency, relative_to_own
from catro_deploy.stages.table import STAGES
from catro_deploy.stages.variants import variants
from tests.report.made import make_variants, slower_by
from tests.stages.searching import KNOBS, search_by_rule, settings_of
from tests.tiny import command, exit_code_of

pytestmark = pytest.mark.usefixtures("short_trials")


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def halving(run, monkeypatch):
    return search_by_rule(run, monkeypatch)


def test_where_no_variant_meets_the_budget_it_is_missed(halving, run):
    with pytest.raises(MissedError, match=r"0\.5x"):
        halving(lambda changes, step: None, settings_of(minutes=60))
    assert not run.variants.exists()


def losing(**points):
    """Lose half a point at 0.5x and ``points`` at other budgets, whatever else changes."""
    return lambda changes, step: points.get(changes.get("prune.budget", ""), 0.5)


SEVERAL = {"knobs": ("depth",), "budgets": ["0.35x", "0.5x", "0.25x"], "epochs": 0}


def test_each_budget_has_variants_of_its_own(halving, run):
    found, diary = halving(losing(), settings_of(**SEVERAL))
    assert diary == [
        (0, "as set"), (0, "depth never"),
        (0, "as set", "0.35x"), (0, "depth never", "0.35x"),
        (0, "as set", "0.25x"), (0, "depth never", "0.25x"),
    ]  # fmt: skip
    assert [one.changes.get("prune.budget") for one in found.variants] == [None, None, *["0.35x"] * 2, *["0.25x"] * 2]
    assert (found.minutes, found.left_out) == (6, 0)
    assert load(Variants, run) == found


@pytest.mark.parametrize(
    ("max_drop", "lost", "taken"),
    [
        (1.0, {"0.35x": 0.9, "0.25x": 1.5}, "0.35x"),
        (2.0, {"0.35x": 0.9, "0.25x": 1.5}, "0.25x"),
        (1.0, {"0.35x": 1.4, "0.25x": 1.5}, None),
        (0.1, {"0.35x": 0.9, "0.25x": 1.5}, None),  # none keeps the accuracy: --budget is used
        (None, {"0.35x": 0.9, "0.25x": 0.9}, None),
        (2.0, {"0.35x": 0.9, "0.25x": None}, "0.35x"),  # no network meets 0.25x
    ],
)
def test_the_fastest_budget_is_taken_that_keeps_the_accuracy(halving, max_drop, lost, taken):
    found, _ = halving(losing(**lost), settings_of(max_drop=max_drop, **SEVERAL))
    assert found.variants[0].changes == ({"prune.budget": taken} if taken else {})
    assert len(found.variants) == 6


@pytest.mark.parametrize("max_drop", [None, 0.1])
def test_another_budget_does_not_replace_one_that_cannot_be_met(halving, run, max_drop):
    """Unless the other one keeps the accuracy, which is what a search with an allowed loss is for."""

    def lost(changes, step):
        return 0.5 if changes.get("prune.budget") == "0.35x" else None

    with pytest.raises(MissedError, match=r"meets the budget 0\.5x, 0\.25x\. Networks were found for 0\.35x\."):
        halving(lost, settings_of(max_drop=max_drop, **SEVERAL))
    assert not run.variants.exists()


def test_a_budget_that_cannot_be_met_does_not_matter_if_another_keeps_the_accuracy(halving):
    found, _ = halving(
        lambda changes, step: 0.5 if "prune.budget" in changes else None, settings_of(max_drop=1.0, **SEVERAL)
    )
    assert found.variants[0].changes["prune.budget"] in ("0.35x", "0.25x")


def test_the_time_is_shared_by_the_budgets(halving):
    _, diary = halving(losing(), settings_of(minutes=6, **SEVERAL | {"knobs": KNOBS}))
    assert [len([one for one in diary if one[2:] == end]) for end in ((), ("0.35x",), ("0.25x",))] == [2, 2, 2]


def test_only_budgets_of_latency_are_searched():
    with pytest.raises(BudgetError, match="50%flops"):
        settings_of(budgets=["0.5x", "50%flops"])


def test_a_budget_of_a_variant_becomes_the_setting(run):
    save(make_variants(variants=(Variant({"prune.budget": "0.25x"}, slower_by(0.24, 0.01), 0.2, (0.1,)),)), run)
    stage_of = {one.name: one for one in STAGES}
    assert str(as_decided(settings_of(), stage_of["prune"], run).prune.budget) == "0.25x"


def test_what_cannot_be_compared_is_refused(run):
    with pytest.raises(TargetError, match="jetson-orin"):
        variants(settings_of(target="jetson-orin"), run, Silent())
    with pytest.raises(SettingsError, match="50%flops"):
        variants(settings_of(budget="50%flops"), run, Silent())


@pytest.mark.parametrize(
    ("take", "criterion", "precision"), [(0, "catro", "int8"), (2, "catro", "target"), (3, "obs", "target")]
)
def test_later_stages_have_the_settings_of_the_variant(run, take, criterion, precision):
    save(make_variants(), run)
    settings = settings_of(take=take)
    for name in ("prune", "quantize", "bench"):
        (one,) = [one for one in STAGES if one.name == name]
        decided = as_decided(settings, one, run)
        assert (decided.prune.criterion, decided.quantize.precision) == (criterion, precision)
    (search,) = [one for one in STAGES if one.name == "variants"]
    assert as_decided(settings, search, run) == settings


@pytest.mark.parametrize("take", [4, 5])
def test_a_variant_that_is_not_there_or_met_no_budget_cannot_be_taken(run, take):
    save(make_variants(), run)
    with pytest.raises(SettingsError, match=str(take)):
        as_decided(settings_of(take=take), next(one for one in STAGES if one.name == "prune"), run)


@pytest.mark.slow
def test_from_the_command_to_the_report_and_another_variant(tiny, folder, monkeypatch):
    collected, collect = [], Readers._measure
    monkeypatch.setattr(Readers, "_measure", lambda self, *of: collected.append(self) or collect(self, *of))
    shutil.copy(folder / "blocks.safetensors", tiny)
    text = (tiny / "catro.toml").read_text().replace('budget = "50%flops"', 'budget = "0.8x"')
    write_text(tiny / "catro.toml", text)
    whole = (
        "run",
        "--model",
        "tests.tiny:blocks",
        "--checkpoint",
        "blocks.safetensors",
        "--search",
        "--knobs",
        "depth",
        "--search-budgets",
        "0.9x",
    )
    done = command(*whole)
    (path,) = (tiny / "runs").iterdir()
    assert done.exit_code == exit_code_of(path), done.stderr
    assert len(collected) == 1  # once for all variants of both budgets
    run = RunFolder(path)
    found, report, plan = load(Variants, run), load(Report, run), load(Plan, run)
    assert report.variants == found
    assert f"variant 1 of {len(found.variants)}: {found.variants[0].name}" in done.stdout
    assert plan.pruned_macs / plan.original_macs == found.variants[0].macs_share
    best = [len(one.kl_nats) for one in found.variants]
    assert best == sorted(best, reverse=True)
    assert best[0] == 2  # an epoch has fewer than 100 steps
    kept = {file.name for file in run.searched.glob("*/*")} - {".lock"}
    assert kept == {"variant.json", "plan.json", "pruned.safetensors"}
    again = command(*whole)
    assert "variants: unchanged, skipped" in again.stderr
    assert "done in" not in again.stderr
    other = command(*whole, "--take", "2")
    assert "variants: unchanged, skipped" in other.stderr
    assert "prune: done in" in other.stderr
    assert load(Report, run).variant_taken == 2


@pytest.mark.slow
def test_a_variant_at_a_smaller_size_is_measured_trained_and_served(tiny, folder):
    shutil.copy(folder / "blocks.safetensors", tiny)
    text = (tiny / "catro.toml").read_text().replace('budget = "50%flops"', 'budget = "0.8x"')
    write_text(tiny / "catro.toml", text)
    whole = ["run", "--model", "tests.tiny:blocks", "--checkpoint", "blocks.safetensors", "--search"]
    whole += ["--knobs", "input_size"]
    done = command(*whole)
    (path,) = (tiny / "runs").iterdir()
    assert done.exit_code == exit_code_of(path), done.stderr
    run = RunFolder(path)
    found = load(Variants, run).variants
    assert {one.changes.get("prune.input_size") for one in found} == {None, "14", "12", "10"}  # of 16
    number = next(place for place, one in enumerate(found, 1) if one.changes)
    done = command(*whole, "--take", str(number))
    assert done.exit_code == exit_code_of(path), done.stderr
    side = int(found[number - 1].changes["prune.input_size"])
    assert load(Plan, run).resized_to == (side, side)
    assert re.search(rf"computes at +16 +{side}\b", done.stdout)
    assert load(Report, run).input.resized_to == (side, side)


@pytest.mark.slow
def test_a_variant_in_another_runtime_is_measured_and_served_there(tiny, folder):
    pytest.importorskip("openvino")
    shutil.copy(folder / "blocks.safetensors", tiny)
    text = (tiny / "catro.toml").read_text().replace('budget = "50%flops"', 'budget = "0.8x"')
    write_text(tiny / "catro.toml", text)
    whole = ["run", "--model", "tests.tiny:blocks", "--checkpoint", "blocks.safetensors", "--search"]
    whole += ["--knobs", "runtime", "--epochs", "0"]
    done = command(*whole)
    (path,) = (tiny / "runs").iterdir()
    assert done.exit_code == exit_code_of(path), done.stderr
    run = RunFolder(path)
    found = load(Variants, run).variants
    number, there = next((place, one) for place, one in enumerate(found, 1) if one.changes)
    assert there.changes["prune.target"] == "x86-cpu-openvino"
    (timed,) = [load(Runtimes, RunFolder(one)) for one in run.searched.glob("runtimes-*")]
    faster = next(row.speedup for row in timed.rows if row.runtime.startswith("openvino"))
    assert there.changes["prune.budget"] == str(at_equal_latency(Budgets.parse("0.8x"), faster))
    done = command(*whole, "--take", str(number))
    assert "variants: unchanged, skipped" in done.stderr
    assert done.exit_code == exit_code_of(path), done.stderr
    plan, bench, report = load(Plan, run), load(Bench, run), load(Report, run)
    assert plan.target == bench.environment["target"] == report.target == "x86-cpu-openvino"
    assert plan.budget == there.changes["prune.budget"]
    (kept,) = [one.speedup for one in plan.latency.rounds if one.taken]
    assert there.speedup == relative_to_own(kept, faster)
    assert (path / "ship" / "pruned.xml").is_file()
    assert "Latencies are shares of the original's latency on the given target" in (path / "report.md").read_text()
