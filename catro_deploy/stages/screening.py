"""Screening of the variants of a pruning: how far each would be from the original, in seconds instead of minutes.

Widths are allocated by predicted latency, and layers are reconstructed from a few images, in floating point. Nothing is
exported, timed or calibrated: which variants are then pruned follows from it, but not what is reported of them.
"""

import time
from collections.abc import Mapping

from catro_deploy.errors import MissedError, NumericsError
from catro_deploy.progress import Silent
from catro_deploy.pruning.classifier import screen_classifier
from catro_deploy.pruning.shared import Shared
from catro_deploy.records import Screened
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load_if_there, save
from catro_deploy.settings import Settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import pruning_batches

__all__ = ["Screening"]


class Screening:
    """Screens variants of one pruning; the images are read once."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self._original, self._shared = open_original(settings), shared
        self._batches = pruning_batches(self._original, settings)

    def screened(self, changes: Mapping[str, str], settings: Settings, folder: RunFolder) -> Screened:
        """The result of the variant with these ``settings``; kept in screened.json of its ``folder``."""
        if (ended := load_if_there(Screened, folder)) is not None:
            return ended
        began = time.monotonic()
        with folder.lock():
            found = Screened(dict(changes), self._kl_nats(settings), time.monotonic() - began)
            save(found, folder)
        return found

    def _kl_nats(self, settings: Settings) -> float | None:
        labelled = self._original.dataset.labelled
        try:
            return screen_classifier(
                self._original, self._batches, settings, Silent(), labelled=labelled, shared=self._shared
            )
        except (MissedError, NumericsError):
            return None
