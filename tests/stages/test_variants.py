"""Several prunings to one budget; the one nearest to the original is taken."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from catro_deploy.assessment.basis import Basis
from catro_deploy.budget import Budgets
from catro_deploy.data import MemorySplit
from catro_deploy.errors import BudgetError, MissedError, NumericsError, SettingsError, TargetError
from catro_deploy.files import write_text
from catro_deploy.progress import Silent
from catro_deploy.reconstruction.readers import Readers
from catro_deploy.records import Bench, Plan, Runtimes, TriedVariant, Variant, Variants
from catro_deploy.records.report import Report
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load, save
from catro_deploy.settings import load_settings
from catro_deploy.stages import halving as halving_module
from catro_deploy.stages import variants as stage
from catro_deploy.stages.decided import as_decided
from catro_deploy.stages.held_out import HeldOut
from catro_deploy.stages.other_runtimes import at_equal_latency, relative_to_own
from catro_deploy.stages.table import STAGES
from catro_deploy.stages.variants import variants
from catro_deploy.stages.ways import Available
from tests.notes import Notes
from tests.report.made import make_variants, slower_by
from tests.tiny import command, exit_code_of

pytestmark = pytest.mark.usefixtures("short_trials")

KNOBS = ("criterion", "worth", "depth", "precision")


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


def settings_of(minutes=15.0, knobs=KNOBS, epochs=4, take=0, budgets=(), max_drop=None, **pruning):
    return load_settings(
        None,
        {
            "prune": {"budget": "0.5x"} | pruning,
            "search": {
                "enabled": True,
                "minutes": minutes,
                "knobs": list(knobs),
                "take": take,
                "budgets": list(budgets),
            },
            "verify": {"max_drop": max_drop},
            "finetune": {"epochs": epochs},
        },
    )


def held_out_of(train_images=20_000):
    """Ten validation images, and an epoch of ``train_images``, in batches of 128 if there are thousands."""
    images = MemorySplit(torch.zeros(10, 3, 2, 2, dtype=torch.uint8), np.zeros(10, np.int64))
    train = MemorySplit(torch.zeros(train_images, 1, 1, 1, dtype=torch.uint8), np.zeros(train_images, np.int64))
    basis = Basis("accuracy", np.zeros(10, np.int64), 0.9)
    return HeldOut(train, images, np.zeros((10, 2), np.float32), basis)


@pytest.fixture
def halving(run, monkeypatch):
    """Search variants whose divergence after each step is ``kl(changes, step)``; None: no network meets the budget."""

    def search(kl, settings, seconds=60.0, train_images=20_000):
        diary = []

        def ended(self, tried, step):
            budget = str(self._settings.prune.budget)
            diary.append((step, tried.name) if budget == "0.5x" else (step, tried.name, budget))
            found = kl(tried.changes if budget == "0.5x" else {**tried.changes, "prune.budget": budget}, step)
            ratio = float(budget.removesuffix("x")) - 0.01
            reached = {"speedup": slower_by(ratio, 0.01), "kl_nats": (*tried.kl_nats, found)} if found else {}
            reached |= {"agreement": 1 - found / 100, "validation_accuracy": 0.9 - found / 100} if found else {}
            return replace(tried, seconds=(*tried.seconds, seconds), **reached)

        one = halving_module.Halving
        monkeypatch.setattr(one, "_pruned", lambda self, changes: ended(self, TriedVariant(dict(changes)), 0))
        monkeypatch.setattr(
            one, "_trained", lambda self, tried, training: ended(self, tried, 1 if "steps" in training else 2)
        )
        monkeypatch.setattr(one, "_folder", lambda self, changes: run)
        return stage._searched(settings, run, held_out_of(train_images), Silent(), Available()), diary

    return search


def by_changes(changes, step):
    """Fewer changes are nearer, training halves the distance; int8 is nearest of all."""
    return (1 + len(changes) - 2 * ("quantize.precision" in changes)) / 2**step + 1


def test_the_nearest_few_are_trained_and_of_these_the_nearest_two(halving, run):
    found, diary = halving(by_changes, settings_of(minutes=60))
    assert [step for step, _ in diary] == [0] * 12 + [1] * 4 + [2] * 2
    assert next(name for step, name in diary if step == 2) == "precision int8"
    assert [len(one.kl_nats) for one in found.variants] == [3, 3, 2, 2] + [1] * 8
    assert found.variants[0].name == "precision int8"
    assert load(Variants, run) == found


def test_the_next_variant_differs_least_from_the_best_so_far(halving):
    _, diary = halving(by_changes, settings_of(minutes=60))
    tried = [name for step, name in diary if step == 0]
    assert tried[:2] == ["as set", "precision int8"]
    assert all("precision int8" in name for name in tried[2:5])  # one more change than the best


def test_no_variant_and_no_training_is_begun_that_would_exceed_the_time(halving):
    found, diary = halving(by_changes, settings_of(minutes=5))  # a minute each: 3 for pruning, then training
    assert [step for step, _ in diary] == [0] * 3 + [1] * 2
    assert found.left_out == 12 - 3
    assert found.minutes == 5


@pytest.mark.parametrize(("minutes", "epochs"), [(11.5, 0), (11.6, 1), (13, 2)])
def test_an_epoch_is_expected_to_last_as_long_as_its_share_of_100_steps(halving, minutes, epochs):
    _, diary = halving(by_changes, settings_of(minutes=minutes))  # 156 steps: the first takes 1.56 minutes
    assert [step for step, _ in diary if step] == [1] * 4 + [2] * epochs


def test_a_resumed_search_has_the_variants_of_one_that_was_not_interrupted(halving, run, monkeypatch):
    _, whole = halving(by_changes, settings_of(minutes=10))
    found = []

    def from_disk(self, changes):
        kl, seconds = (by_changes(changes, 0),), (60.0,)
        if not changes:  # the only one that was trained before the interruption
            kl, seconds = (*kl, 0.01, 0.01), (*seconds, 600.0, 600.0)
        found.append(TriedVariant(dict(changes), slower_by(0.49, 0.01), 0.4, kl, 0.9, 0.9, seconds))
        return found[-1]

    monkeypatch.setattr(halving_module.Halving, "_pruned", from_disk)
    halving_module.Halving(settings_of(minutes=10), run, held_out_of(), Silent(), Available(), 600.0).run()
    assert [tried.name for tried in found] == [name for step, name in whole if step == 0]


def test_a_second_variant_is_begun_after_the_time_for_pruning_if_there_is_time_at_all(halving):
    settings = settings_of(minutes=5)
    _, diary = halving(by_changes, settings, seconds=240.0)
    assert diary == [(0, "as set"), (0, "precision int8")]
    _, diary = halving(by_changes, settings, seconds=301.0)
    assert diary == [(0, "as set")]


ONLY_ONE = {"knobs": ["criterion"], "reconstruct": False}


def test_the_only_variant_is_not_trained(halving):
    _, diary = halving(by_changes, settings_of(minutes=60, **ONLY_ONE))
    assert diary == [(0, "as set")]


def test_the_only_variant_of_each_budget_is_trained_since_its_accuracy_decides(halving):
    _, diary = halving(losing(), settings_of(minutes=60, budgets=["0.35x"], **ONLY_ONE))
    assert [step for step, *_ in diary] == [0, 1, 2] * 2


@pytest.mark.parametrize(("images", "trained"), [(100 * 128 + 127, [1] * 4), (101 * 128, [1] * 4 + [2] * 2)])
def test_an_epoch_of_at_most_100_steps_is_trained_once(halving, images, trained):
    found, diary = halving(by_changes, settings_of(minutes=60), train_images=images)
    assert [step for step, _ in diary if step] == trained
    assert found.variants[0].name == "precision int8"


def test_a_variant_whose_training_diverges_stays_as_it_was(run, monkeypatch):
    def diverges(*given):
        raise NumericsError("The loss is not finite.", "Lower the learning rate.")

    monkeypatch.setattr(halving_module, "finetune", diverges)
    monkeypatch.setattr(halving_module.Halving, "_folder", lambda self, changes: run)
    settings, notes = settings_of(), Notes()
    tried = TriedVariant({"prune.depth": "never"}, slower_by(0.49, 0.01), 0.4, (0.1,), 0.9, 0.9, (60.0,))
    one = halving_module.Halving(settings, run, held_out_of(), notes, Available(), 600.0)
    run.path.mkdir()
    run.original_weights.touch()
    trained = one._trained(tried, {"epochs": 1})
    assert trained.kl_nats == tried.kl_nats
    assert len(trained.seconds) == 2
    assert load(TriedVariant, run) == trained
    assert notes.lines == ["depth never: The loss is not finite.\nLower the learning rate."]


def test_without_epochs_nothing_is_trained(halving):
    _, diary = halving(by_changes, settings_of(minutes=60, epochs=0))
    assert {step for step, _ in diary} == {0}


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
