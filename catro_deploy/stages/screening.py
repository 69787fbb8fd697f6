"""Screening of the variants of a pruning: how far each would be from the original, in seconds instead of minutes.

Widths are allocated by predicted latency, and layers are reconstructed from a few images, in floating point. The result
is neither exported, timed nor calibrated: which variants are then pruned follows from it, but not what is reported of
them. Only for the first variant in int8, and for the first at each input size, whole networks are timed to adjust
predictions.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from catro_deploy.errors import MissedError, NumericsError
from catro_deploy.progress import Progress, Silent
from catro_deploy.pruning.classifier import ScreenedNetwork, screen_classifier
from catro_deploy.pruning.shared import Shared
from catro_deploy.records import Screened
from catro_deploy.records.variants import INPUT_SIZE, TARGET, TEMPERATURE
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load_if_there, save
from catro_deploy.settings import Settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import pruning_batches
from catro_deploy.stages.ways import CRITERION, PRECISION, WORTH, with_branches_removed
from catro_deploy.units import counted

__all__ = ["Screening"]

Changes = Mapping[str, str]
Measure = Callable[[Settings], ScreenedNetwork | None]


class Screening:
    """What screening found of the variants of ``settings``; ``sizes`` are the input sizes that they may have.

    Prunings of these variants use the same ``shared``.
    """

    def __init__(self, settings: Settings, shared: Shared, sizes: Sequence[str]) -> None:
        self.found: list[Screened] = []
        self._settings, self._shared, self._sizes = settings, shared, sizes

    @property
    def is_possible(self) -> bool:
        """Whether variants can be screened: only networks that are reconstructed can."""
        return self._settings.prune.reconstruct and self._settings.prune.criterion != "l1"

    @property
    def seconds(self) -> float:
        """The time that screening took."""
        return sum(one.seconds for one in self.found)

    def kl_nats(self, changes: Changes) -> float | None:
        """The divergence of the variant with these changes; None if it was not screened, or no network was found."""
        return next((one.kl_nats for one in self.found if one.changes == changes), None)

    def missed(self, changes: Changes) -> bool:
        """Whether no network is predicted to meet the budget with these changes."""
        return any(one.changes == changes and one.kl_nats is None for one in self.found)

    def screen(
        self,
        variants: Sequence[Changes],
        variant_of: Callable[[Changes], tuple[Settings, RunFolder]],
        limit_s: float,
        progress: Progress,
    ) -> None:
        """Screen ``variants`` as long as there is time, one after another those that share measurements.

        ``variant_of`` returns the settings and the folder of a variant; what was found of it is kept in its
        screened.json, and not computed again.
        """
        measure = self._measure()
        with progress.task("Screening variants", len(variants)) as task:
            for changes in sorted(variants, key=self._measurements_needed):
                if self.seconds + self.seconds / max(len(self.found), 1) > limit_s:
                    break
                found = self._without_branches(changes) or _screened(changes, *variant_of(changes), measure)
                self.found.append(found)
                task.advance()
        progress.note(f"screened {len(self.found)} of {counted(len(variants), 'variant')} in {self.seconds:.0f} s")

    def _measure(self) -> Measure:
        """The function that screens settings; the images are read once."""
        original = open_original(self._settings)
        batches, labelled = pruning_batches(original, self._settings), original.dataset.labelled

        def measure(settings: Settings) -> ScreenedNetwork | None:
            try:
                return screen_classifier(original, batches, settings, Silent(), labelled=labelled, shared=self._shared)
            except (MissedError, NumericsError):
                return None

        return measure

    def _without_branches(self, changes: Changes) -> Screened | None:
        """What was found of the variant that may also remove branches, if it removed none: both are one network."""
        others = with_branches_removed(changes)
        twin = next((one for one in self.found if one.changes == others), None)
        return None if twin is None or twin.dropped else replace(twin, changes=dict(changes), seconds=0.0)

    def _measurements_needed(self, changes: Changes) -> tuple[int, str, int, str]:
        """What is measured for a variant, the most expensive first: worth, profile, times of whole networks."""
        another_worth = len({CRITERION, WORTH, TEMPERATURE} & changes.keys())
        size = 1 + self._sizes.index(changes[INPUT_SIZE]) if INPUT_SIZE in changes else 0
        return another_worth, changes.get(TARGET, ""), size, changes.get(PRECISION, "")


def _screened(changes: Changes, settings: Settings, folder: RunFolder, measure: Measure) -> Screened:
    if (ended := load_if_there(Screened, folder)) is not None:
        return ended
    began = time.monotonic()
    with folder.lock():
        network = measure(settings)
        kl_nats, dropped = (network.kl_nats, network.dropped) if network else (None, 0)
        found = Screened(dict(changes), kl_nats, time.monotonic() - began, dropped)
        save(found, folder)
    return found
