"""Successive halving of the variants of a pruning to one budget.

No proxy ranks settings as well as trying them, and reconstruction makes trying cheap. All variants are screened; those
expected to be nearest are pruned, measured and reconstructed; the nearest few of these are trained for 100 steps, and
the nearest two for an epoch. Nearness is the divergence from the original's outputs: for screening on a few training
images, then on validation images. It needs no labels, is finer than counting predictions, and is meaningful even if the
original was trained on these images.
"""

import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from catro_deploy.data.base import is_unlabelled
from catro_deploy.errors import MissedError, NumericsError
from catro_deploy.files import file_hash
from catro_deploy.models.saved import save_network
from catro_deploy.progress import Progress
from catro_deploy.records import Plan, Speedup, TriedVariant, Variant
from catro_deploy.records.variants import INPUT_SIZE, STEPS, TARGET
from catro_deploy.report.wording import nats
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import load_if_there, save
from catro_deploy.settings import LARGEST_BATCH, Settings, follow_recipe
from catro_deploy.settings.sides import size_text
from catro_deploy.stages.decided import changed
from catro_deploy.stages.expectation import expected_kl_nats
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.held_out import HeldOut
from catro_deploy.stages.judging import judged
from catro_deploy.stages.original import open_original
from catro_deploy.stages.other_runtimes import relative_to_own
from catro_deploy.stages.prune import prune
from catro_deploy.stages.screening import Screening
from catro_deploy.stages.trials import trial_folder
from catro_deploy.stages.ways import PRECISION, Available, ways, with_branches_removed, with_budget
from catro_deploy.units import counted

__all__ = ["Ended", "Halving"]

Changes = Mapping[str, str]

TRAINING = ({"epochs": 1, "steps": 100}, {"epochs": 1})
"""Settings of [finetune] in the steps after reconstruction."""
PROMOTED = (4, 2)
"""Number of variants that reach each of these steps."""
SCREENING_SHARE = 0.5
"""Share of the minutes for screening and for the first variant, which is pruned before."""
PRUNING_SHARE = 0.6
"""Share of the minutes for screening and pruning, from the third variant on, if the rest suffices for training."""
NEARLY_EQUAL = 1.2
"""Expected divergences that differ by less than this factor count as equal."""
PRUNE = 0
"""Index of the first step of a variant; those of the trainings follow."""


@dataclass(frozen=True)
class Ended:
    """The variants of one budget, the best first; how many were not pruned, and screened; the seconds that all took."""

    tried: tuple[TriedVariant, ...]
    left_out: int
    screened: int
    seconds: float


class Halving:
    """The variants of one budget, and the time for them."""

    def __init__(
        self,
        settings: Settings,
        run: RunFolder,
        held_out: HeldOut,
        progress: Progress,
        available: Available,
        limit_s: float,
    ) -> None:
        self._settings, self._run, self._held_out, self._progress = settings, run, held_out, progress
        self._available = available
        self._limit_s = limit_s
        self._sizes = [size_text(size) for size in available.sizes]
        self._tried: list[TriedVariant] = []
        self._screening = Screening(settings, held_out.shared, self._sizes)

    def run(self) -> Ended:
        """All variants after all steps, the best first."""
        left_out = self._prune_all()
        for step, (most, training) in enumerate(self._trainings(), 1):
            self._train_best(step, most, training)
        return Ended(tuple(sorted(self._tried, key=_rank)), left_out, len(self._screening.found), self._spent_s)

    def _trainings(self) -> Sequence[tuple[int, Mapping[str, int]]]:
        """Number of variants and settings of each training step; 100 steps of a shorter epoch are that epoch."""
        steps = tuple(zip(PROMOTED, TRAINING, strict=True))
        if self._epoch_steps <= TRAINING[0]["steps"]:
            steps = steps[:1]
        return steps if self._settings.finetune.epochs else ()

    @property
    def _epoch_steps(self) -> int:
        """Training steps in an epoch."""
        images = len(self._held_out.train.labels)
        options = follow_recipe(self._settings.finetune, self._settings.prune.reconstruct, images=images)
        return images // min(options.batch_size or LARGEST_BATCH, images)

    @property
    def _spent_s(self) -> float:
        """Time spent so far, also before an interruption of the search."""
        return sum(sum(one.seconds) for one in self._tried) + self._screening.seconds

    def _expected_s(self, step: int) -> float:
        """The median time of this step so far; until known, that of the step before (for an epoch, by its steps)."""
        if lasted := [one.seconds[step] for one in self._tried if len(one.seconds) > step]:
            return statistics.median(lasted)
        if step == PRUNE:
            return 0.0
        before_s = self._expected_s(step - 1)
        return before_s * self._epoch_steps / TRAINING[0]["steps"] if step == len(TRAINING) else before_s

    def _prune_all(self) -> int:
        """Prune each variant, next the one expected to be nearest; return how many were not pruned.

        Only what was found by screening and pruning counts, and the time for that, so that a search that is resumed
        after training prunes the same variants.
        """
        labelled = not is_unlabelled(self._held_out.images.labels)
        todo, count = ways(self._settings, self._available, labelled=labelled), 0
        while todo and self._has_time_to_prune():
            if self._is_time_to_screen(todo):
                self._screen([self._tried[0].changes, *todo])
            changes = self._next_of(todo)
            todo.remove(changes)
            if self._is_without_branches(changes) or self._was_screened_as_tried(changes):
                continue
            tried, count = self._pruned(changes), count + 1
            equal = f", the same network as {twin.name}" if (twin := self._twin(tried)) else ""
            self._tried.append(tried)
            self._progress.note(f"variant {count} of {count + len(todo)}: {tried.name}: {_outcome(tried)}{equal}")
        if todo:
            left = counted(len(todo), "variant was", "variants were")
            self._progress.note(f"{left} not pruned: allow more time with --search-minutes")
        return len(todo)

    def _is_time_to_screen(self, todo: Sequence[Changes]) -> bool:
        """Whether the first variant was just pruned, and too many are left to prune them all."""
        begun = len(self._tried) != 1 or self._screening.found
        return not begun and len(todo) > PROMOTED[0] and self._screening.is_possible

    def _screen(self, variants: Sequence[Changes]) -> None:
        limit_s = self._limit_s * SCREENING_SHARE - sum(one.seconds[PRUNE] for one in self._tried)
        self._screening.screen(variants, lambda one: (self._changed(one), self._folder(one)), limit_s, self._progress)
        (first,) = self._tried
        self._tried = [replace(first, screened_nats=self._screening.kl_nats(first.changes))]

    def _was_screened_as_tried(self, changes: Changes) -> bool:
        """Whether screening found exactly what it found for a variant that was tried: both are the same network."""
        found, served = self._screening.kl_nats(changes), _served(changes)
        return found is not None and any(
            one.screened_nats == found and _served(one.changes) == served for one in self._tried
        )

    def _next_of(self, todo: Sequence[dict[str, str]]) -> dict[str, str]:
        """The variant expected to be nearest; of nearly equal ones that with the fewest changes, which comes first.

        Those that were screened have precedence: what is expected of the others is extrapolated.
        """
        met = [(one.changes, one.kl_nats[PRUNE]) for one in self._tried if one.kl_nats]
        if not met:
            return todo[0]
        screened = [(one.changes, one.kl_nats) for one in self._screening.found if one.kl_nats is not None]
        known = [changes for changes in todo if self._screening.kl_nats(changes) is not None]
        likely = known or [changes for changes in todo if not self._screening.missed(changes)] or todo
        expected = expected_kl_nats(met, likely, self._sizes, screened)
        nearest = min(expected)
        return next(one for one, kl_nats in zip(likely, expected, strict=True) if kl_nats <= NEARLY_EQUAL * nearest)

    def _has_time_to_prune(self) -> bool:
        """Whether another variant is begun. A second one has precedence over training: one alone compares nothing.

        From the third on, pruning has its share of the time or, if the rest would not suffice to train two, all of it.
        """
        spent_s = sum(one.seconds[PRUNE] for one in self._tried) + self._screening.seconds
        if len(self._tried) < 2:
            return spent_s <= self._limit_s
        pruning_s = self._expected_s(PRUNE)  # as long as 100 steps are expected to take; in a resumed search, too
        trains = self._trainings() and spent_s + 2 * pruning_s <= self._limit_s
        return spent_s + pruning_s <= self._limit_s * (PRUNING_SHARE if trains else 1)

    def _is_without_branches(self, changes: Changes) -> bool:
        """Whether no branch may be removed, and the variant that allows it removed none: both are the same network."""
        if (others := with_branches_removed(changes)) is None:
            return False
        twin = self._folder(others)
        return twin.plan.is_file() and not load_plan(twin).dropped

    def _pruned(self, changes: Changes) -> TriedVariant:
        folder = self._folder(changes)
        if (ended := load_if_there(TriedVariant, folder)) is not None:
            return ended
        began, settings = time.monotonic(), self._changed(changes)
        tried = TriedVariant(dict(changes), screened_nats=self._screening.kl_nats(changes))
        with folder.lock():
            try:
                plan = load_plan(folder) if folder.plan.is_file() else self._prune(settings, folder)
                share = plan.pruned_macs / plan.original_macs
                measured = replace(tried, speedup=self._speedup(changes, plan), macs_share=share)
                tried = judged(measured, folder, "pruned", settings, self._held_out)
            except (MissedError, NumericsError) as error:
                self._progress.note(f"{tried.name}: {error}")
            return self._kept(tried, folder, began)

    def _prune(self, settings: Settings, folder: RunFolder) -> Plan:
        return prune(settings, folder, self._progress, self._held_out.look, self._held_out.shared)

    def _train_best(self, step: int, most: int, training: Mapping[str, int]) -> None:
        """Train the nearest ``most`` of those that have finished the previous step, as long as there is time.

        Of equal networks only the first is trained. One network of a single budget is not trained alone, since that
        would compare nothing: neither if it is the only one, nor if there is not enough time for two.
        """
        done = [one for one in self._tried if len(one.kl_nats) >= step and not self._twin(one)]
        ready = sorted(done, key=lambda one: one.kl_nats[step - 1])
        if not self._settings.search.budgets:
            missing = sum(len(one.kl_nats) == step for one in ready[:2])
            if len(ready) == 1 or self._spent_s + missing * self._expected_s(step) > self._limit_s:
                return
        for one in ready[:most]:
            if len(one.kl_nats) == step and self._spent_s + self._expected_s(step) <= self._limit_s:
                trained = self._trained(one, training)
                self._tried[self._tried.index(one)] = trained
                if len(trained.kl_nats) > step:
                    self._progress.note(f"{trained.name}: {_distance(trained)} after {STEPS[step]}")

    def _twin(self, tried: TriedVariant) -> TriedVariant | None:
        """The variant tried before this one that is the same network, as different settings may lead to one."""
        if not tried.kl_nats:
            return None
        earlier = itertools.takewhile(lambda one: one.changes != tried.changes, self._tried)
        network = self._network(tried)
        return next((one for one in earlier if one.kl_nats and self._network(one) == network), None)

    def _network(self, tried: TriedVariant) -> tuple[str, ...]:
        """What identifies the network as it would be served."""
        return file_hash(self._folder(tried.changes).pruned_weights), *_served(tried.changes)

    def _trained(self, tried: TriedVariant, training: Mapping[str, int]) -> TriedVariant:
        began, folder = time.monotonic(), self._folder(tried.changes)
        settings = self._changed(tried.changes)
        short = settings.model_copy(update={"finetune": settings.finetune.model_copy(update=training)})
        with folder.lock():
            if not folder.original_weights.is_file():
                original = open_original(settings)
                save_network(original.model, original.input_shape, folder.original_weights)
            try:
                finetune(short, folder, self._progress, self._held_out)
                tried = judged(tried, folder, "finetuned", settings, self._held_out)
            except NumericsError as error:
                self._progress.note(f"{tried.name}: {error}")
            return self._kept(tried, folder, began)

    def _kept(self, tried: TriedVariant, folder: RunFolder, began: float) -> TriedVariant:
        tried = replace(tried, seconds=(*tried.seconds, time.monotonic() - began))
        save(tried, folder)
        self._tidy(folder)
        return tried

    def _tidy(self, folder: RunFolder) -> None:
        """Delete everything except what later stages continue with."""
        for file in folder.path.glob("*"):
            kept = (folder.screened, folder.variant, folder.plan, folder.pruned_weights, folder.path / ".lock")
            if file not in kept:
                file.unlink()

    def _folder(self, changes: Changes) -> RunFolder:
        return trial_folder(self._changed(changes), self._run)

    def _changed(self, changes: Changes) -> Settings:
        return changed(self._settings, with_budget(changes, self._settings, self._available))

    def _speedup(self, changes: Changes, plan: Plan) -> Speedup:
        assert plan.latency is not None
        (speedup,) = [one.speedup for one in plan.latency.rounds if one.taken]
        return relative_to_own(speedup, self._available.targets[changes[TARGET]]) if TARGET in changes else speedup


def _served(changes: Changes) -> tuple[str, ...]:
    """The settings that identify how a network is served."""
    return tuple(changes.get(place, "") for place in (PRECISION, TARGET, INPUT_SIZE))


def _rank(tried: Variant) -> tuple[int, float]:
    """Sort key: those that got further first, of these the nearest first; last those that met no budget."""
    return -len(tried.kl_nats), tried.kl_nats[-1] if tried.kl_nats else 0.0


def _outcome(tried: Variant) -> str:
    if tried.speedup is None:
        return "no network meets the budget"
    return f"{tried.speedup.ratio:.3f}x, {_distance(tried)}"


def _distance(tried: Variant) -> str:
    return f"divergence {nats(tried.kl_nats[-1])}"
