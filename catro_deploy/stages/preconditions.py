"""What must hold before stages start, so that a wrong setting is reported at once and not after minutes."""

from collections.abc import Sequence

from catro_deploy.agent.jobs import FactsJob
from catro_deploy.calibration import load_int8_recipe, load_latency_protocol, load_profile_protocol
from catro_deploy.errors import SettingsError, TargetError
from catro_deploy.progress import Progress
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import AUTO, TARGETS_OWN, Settings
from catro_deploy.settings.labels import require_labels_unneeded
from catro_deploy.stages.decided import require_comparable
from catro_deploy.stages.outside import counts_latency
from catro_deploy.stages.table import BENCH, PRUNE, VERIFY, Stage
from catro_deploy.targets import Target, load_target
from catro_deploy.transports import device_of, is_carried, require_cache, run_job
from catro_deploy.transports.reach import compared_runtimes, reachable, require_latency
from catro_deploy.transports.registry import HERE
from catro_deploy.transports.sides import require_power, require_sides, sides_of

__all__ = ["Devices", "check_before_writing", "check_settings"]


def check_settings(settings: Settings) -> None:
    """Check early what would otherwise fail after minutes.

    Raises:
        UsageError: the target, the budget or a protocol is invalid, or they are incompatible.
        TargetError: searching for a budget or variant, or deciding a precision, needs a target that cannot be reached
            from here; or energy is limited on a device that does not report its power.
        DeviceError, RuntimeMissingError, FaultError: energy is limited on a device that cannot be used.
    """
    target = load_target(settings.prune.target)
    require_sides(settings)
    if settings.prune.budget == AUTO:
        _require_searchable(settings, target)
    elif counts_latency(settings):
        require_latency(target, settings.prune.device)
    if settings.search.enabled:
        require_comparable(settings)
    elif settings.search.take or settings.search.budgets:
        raise SettingsError(
            "take and budgets in [search] are for a search, and none is requested.",
            "Add --search, or leave out --take and --search-budgets.",
        )
    if settings.quantize.precision != TARGETS_OWN and not reachable(target, settings.prune.device):
        raise TargetError(
            f"A precision is decided by measurement, and {target.name} cannot be reached from here.",
            "Leave --precision out, or add such a device: catro-deploy device add",
        )
    _check_measuring(settings)
    require_power(settings)


def check_before_writing(settings: Settings, names: Sequence[str]) -> None:
    """Check what would otherwise fail in the stages ``names``, after these settings are stored in the run folder.

    Raises:
        UsageError: a protocol, a recipe or a runtime is unknown, or the settings are incompatible.
    """
    _check_measuring(settings)
    require_labels_unneeded(names, settings)
    batch = max(settings.bench.batch or load_target(settings.prune.target).batch, *settings.bench.batches, 1)
    if BENCH in names and batch > 1 and not settings.export.dynamic_batch:
        raise SettingsError(
            f"{batch} images at a time are to be measured, but the ONNX files take one: export.dynamic_batch is off.",
            "Add --dynamic-batch to the command that exports (run or export), or measure one at a time: --batch 1",
        )


class Devices:
    """The devices of a run, which are checked once, before the first stage that is not done."""

    def __init__(self, settings: Settings, run: RunFolder, progress: Progress) -> None:
        self._settings, self._run, self._progress = settings, run, progress
        self._checked = False

    def require(self, stages: Sequence[Stage]) -> None:
        """Check the devices and the cache folder if ``stages``, the first of which runs next, will use them.

        A stage that is alone and has no results to lose finds out itself.

        Raises:
            DeviceError: a device cannot be reached.
            RuntimeMissingError, FaultError: the runtime does not work there.
            StorageError: the cache folder cannot be written.
        """
        timed = [PRUNE] if counts_latency(self._settings) else []
        using = [stage for stage in stages if stage.on_device or stage.name in timed]
        alone = using == [stages[0]] and stages[0].name not in self._run.finished()
        if self._checked or not using or alone:
            return
        self._checked = True
        first, *others = sides_of(self._settings)
        places = {device_of(first.device, self._run): first.target, **{side.device: side.target for side in others}}
        for device, target in places.items():
            if is_carried(device) or not reachable(target, device):
                continue
            if device != HERE:
                self._progress.note(f"checking that {device} can be used")
                run_job(device, FactsJob(target.runtime), self._run.path, (), note=self._progress.note)
            elif [stage.name for stage in using] != [VERIFY]:  # which needs no cache
                require_cache()


def _check_measuring(settings: Settings) -> None:
    if settings.bench.runtimes:
        compared_runtimes(load_target(settings.prune.target), settings.bench.runtimes)
    load_int8_recipe(settings.quantize.recipe)
    load_latency_protocol(settings.bench.protocol)
    load_profile_protocol(settings.profile.protocol)


def _require_searchable(settings: Settings, target: Target) -> None:
    if settings.verify.max_drop is None:
        raise SettingsError(
            "The budget auto is searched for an allowed loss of accuracy, which is not set.",
            "Set it in points: catro-deploy run --budget auto --max-drop 0.5; or name a budget: --budget 0.5x",
        )
    if not reachable(target, settings.prune.device):
        raise TargetError(
            f"The budget auto is searched by measurement, and {target.name} cannot be reached from here.",
            "Name a budget, such as --budget 0.5x.",
        )
