"""Running the stages in order, and skipping those that are up to date.

A stage is skipped if it has already finished with the same settings, files and images. When a stage begins, it and the
stages that read its files are marked as not done, so that a file of an earlier attempt is never mistaken for a new one.
"""

import importlib
import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from catro_deploy.errors import MissedError, RunFolderError, TargetError
from catro_deploy.files import require_utf8, text_hash, write_text
from catro_deploy.progress import Progress
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.holding import hold
from catro_deploy.settings import AUTO, TARGETS_OWN, Settings, settings_text
from catro_deploy.stages.applicable import applicable
from catro_deploy.stages.decided import as_decided, require_best_taken
from catro_deploy.stages.image_stamps import forget_stamps
from catro_deploy.stages.outside import checkpoint_hash, deciding
from catro_deploy.stages.preconditions import Devices, check_before_writing
from catro_deploy.stages.replacing import are_done, replacement, sibling_folder
from catro_deploy.stages.table import RUNTIMES, SEARCH, STAGES, VARIANTS, Stage
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import reachable, require_reachable
from catro_deploy.transports.registry import HERE, find_device, load_devices
from catro_deploy.transports.sides import known_target

__all__ = [
    "STAGES",
    "TRAIN",
    "Stage",
    "ensure_checkpoint",
    "keep_earlier",
    "run_folder_name",
    "run_stages",
    "train_checkpoint",
    "with_search",
    "with_target_of_device",
]

TRAIN = "catro_deploy.stages.train:train"
# Stage -> the command that runs it, for stages that are not commands themselves.
COMMANDS = {SEARCH: "run", VARIANTS: "run", RUNTIMES: "bench"}


def with_target_of_device(settings: Settings) -> Settings:
    """``settings`` with the target of the named device, or with the only device of a target not reachable from here.

    Raises:
        TargetError: there is no such device, or it has another target.
    """
    if settings.prune.device == HERE:
        return _with_only_device(settings)
    device = find_device(settings.prune.device)
    if "target" not in settings.prune.model_fields_set:
        return _with_pruning(settings, target=device.target)
    if known_target(settings.prune.target).name != device.target_name:
        raise TargetError(
            f"The device {device.name} belongs to target {device.target}, but the target is {settings.prune.target}.",
            "Leave --target out; or correct the device's target: "
            f"catro-deploy device add {device.name} --force --target {settings.prune.target}",
        )
    return settings


def _with_only_device(settings: Settings) -> Settings:
    target = known_target(settings.prune.target)
    fitting = [device.name for device in load_devices().values() if device.target_name == target.name]
    if reachable(target) or len(fitting) != 1:
        return settings
    return _with_pruning(settings, device=fitting[0])


def with_search(settings: Settings) -> Settings:
    """``settings`` of a whole run: if a loss of accuracy is allowed and no budget is set, the budget is searched.

    For a target that cannot be reached from here they stay unchanged. If variants may differ in precision, the fastest
    one that keeps the accuracy is served.

    Raises:
        TargetError: the target is not known.
    """
    pruning, search = settings.prune, settings.search
    if not reachable(load_target(pruning.target), pruning.device):
        return settings
    if search.enabled and "precision" in search.knobs and settings.quantize.precision == TARGETS_OWN:
        precision = settings.quantize.model_copy(update={"precision": AUTO})
        settings = settings.model_copy(update={"quantize": precision})
    if "budget" in pruning.model_fields_set or settings.verify.max_drop is None:
        return settings
    return _with_pruning(settings, budget=AUTO)


def _with_pruning(settings: Settings, **changes: object) -> Settings:
    return settings.model_copy(update={"prune": settings.prune.model_copy(update=changes)})


def run_stages(
    names: Sequence[str],
    settings: Settings,
    run: RunFolder,
    progress: Progress,
    *,
    force: bool = False,
    table: Sequence[Stage] = STAGES,
    ahead: Sequence[str] = (),
) -> MissedError | None:
    """Run the stages ``names`` in the order of ``table``, except those that are done; ``force`` runs them anyway.

    Before the first of them runs, the devices that it and later ones need are checked, then the settings are stored;
    ``ahead`` are stages that later calls will run.

    The search runs only for the budget ``auto``, and variants are compared only if [search] is enabled. Pruning then
    uses their results, and the stages after it use the plan.

    Returns:
        The error for a request that was not met, for the caller to raise once the results are shown; else None.

    Raises:
        RunFolderError: another process is using the folder, or an earlier stage has not been run.
        SettingsError: a variant is requested by its number before variants have been compared.
        DeviceError, StorageError: a device or the cache folder cannot be used; earlier results and settings are kept.
        CatroError: whatever a stage raises.
    """
    missed: list[MissedError] = []
    require_utf8(run.path, RunFolderError)
    forget_stamps()
    check_before_writing(settings, names)
    with run.lock():
        table, skipped = applicable(table, names, settings, run)
        _note_left_out(skipped, names, settings, progress)
        if VARIANTS in names and (force or not are_done((VARIANTS,), settings, run, table)):
            require_best_taken(settings)
        found = replacement(names, settings, run, table, force=force)
        replaced = found.lines(run, force=force) if found else iter(())
        devices = Devices(settings, run, progress)

        def begin(stages: Sequence[Stage]) -> None:
            devices.require(stages)
            for line in replaced:  # before the first stage only
                progress.note(line)
            _store(settings, run)

        for place, stage in enumerate(table):
            if stage.name in names:
                later = [other for other in table[place + 1 :] if other.name in {*names, *ahead}]
                missed += _run_stage(stage, settings, run, progress, force, table, partial(begin, [stage, *later]))
        _store(settings, run)
    if not missed:
        return None
    return MissedError("\n".join(m.problem for m in missed), "\n".join(m.hint for m in missed))


def _store(settings: Settings, run: RunFolder) -> None:
    text = settings_text(settings)
    if not run.settings.is_file() or run.settings.read_text(encoding="utf-8") != text:
        write_text(run.settings, text)


def keep_earlier(
    names: Sequence[str], settings: Settings, run: RunFolder, *, force: bool, table: Sequence[Stage]
) -> RunFolder:
    """A folder in which the stages ``names`` replace no earlier results: ``run``, else a new one.

    Raises:
        UsageError: the settings are invalid; nothing is copied then.
    """
    check_before_writing(settings, names)
    table, _ = applicable(table, names, settings, run)
    return sibling_folder(names, settings, run, table, force=force)


def _note_left_out(skipped: Sequence[str], names: Sequence[str], settings: Settings, progress: Progress) -> None:
    """Note that the stages ``skipped`` cannot run, since their target cannot be reached from here.

    Raises:
        TargetError: all requested stages run on that target.
    """
    if not skipped:
        return
    target = load_target(settings.prune.target)
    listed = " and ".join([", ".join(skipped[:-1]), skipped[-1]] if len(skipped) > 1 else skipped)
    if len(skipped) == len(names):
        require_reachable(target, settings.prune.device, listed)
    progress.note(f"{listed}: left out, {target.name} cannot be reached from here")


def _run_stage(
    stage: Stage,
    settings: Settings,
    run: RunFolder,
    progress: Progress,
    force: bool,
    table: Sequence[Stage],
    begin: Callable[[], None],
) -> list[MissedError]:
    """Run ``stage`` unless it is done; ``begin`` is called before its earlier results are removed."""
    _require_upstream(stage, run, table)
    settings = as_decided(settings, stage, run)
    inputs = stage.inputs(settings, run)
    if not force and run.is_done(stage.name, inputs):
        progress.note(f"{stage.name}: unchanged, skipped")
        return run.missed(stage.name)
    begin()
    run.take_back(_with_downstream(stage, run, table))
    for folder in stage.keeps(run) if force else ():
        shutil.rmtree(folder, ignore_errors=True)
    started = time.monotonic()
    missed: list[MissedError] = []
    try:
        _resolve(stage.function)(settings, run, progress)
    except MissedError as error:
        if not stage.may_miss:
            raise
        missed = [error]
    seconds = time.monotonic() - started
    run.mark_done(stage.name, inputs, stage.writes(run), seconds, missed)
    progress.note(f"{stage.name}: done in {seconds:.1f} s" + (", missed the request" if missed else ""))
    return missed


def _require_upstream(stage: Stage, run: RunFolder, table: Sequence[Stage]) -> None:
    needed = set(stage.reads(run))
    missing: list[str] = []
    for earlier in reversed(table):
        if needed & set(earlier.writes(run)):
            needed |= set(earlier.reads(run))
            if not run.is_intact(earlier.name):
                missing.insert(0, earlier.name)
    if missing:
        raise RunFolderError(
            f"{stage.name} needs the results of {', '.join(missing)} in {run.path}, which do not exist yet, or have "
            "been changed or deleted.",
            f"Continue with: catro-deploy {COMMANDS.get(missing[0], missing[0])} --run {run.path}",
        )


def _with_downstream(stage: Stage, run: RunFolder, table: Sequence[Stage]) -> list[str]:
    names, changed = [stage.name], set(stage.writes(run))
    for later in table:
        if later.name != stage.name and changed & set(later.reads(run)):
            names.append(later.name)
            changed |= set(later.writes(run))
    return names


def _resolve(function: str) -> Callable[..., object]:
    module, name = function.split(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def run_folder_name(settings: Settings) -> str:
    """A folder name that distinguishes pruning runs: ``x86-cpu-speed_limits-50pct-flops-1a2b3c4d``.

    Raises:
        CheckpointError: the trained model does not exist.
    """
    parts = {section: deciding(settings, section) for section in ("model", "data", "prune")}
    classes = "+".join(parts["prune"]["classes"]) or "all"
    budget = parts["prune"]["budget"].replace("%", "pct-")
    named: list[str] = [settings.quantize.precision] if settings.quantize.is_named else []
    named += ["search"] if settings.search.enabled else []
    digest = text_hash(json.dumps([parts, checkpoint_hash(settings), *named], sort_keys=True))[:8]
    words = (Path(settings.prune.target).stem, classes[:40], budget, *named, digest)
    return "-".join(re.sub(r"[^\w.+-]+", "_", word) for word in words)


def ensure_checkpoint(settings: Settings, progress: Progress) -> None:
    """Train the baseline if it does not exist and there is a section ``[train]``.

    Raises:
        DataError: there is no such class to keep; nothing is trained then.
        SettingsError: a variant is requested by its number; without a checkpoint none have been compared.
    """
    if settings.train is None or settings.model.checkpoint.is_file():
        return
    require_best_taken(settings)
    if settings.prune.classes:
        from catro_deploy.stages.images import require_classes  # imports torch

        require_classes(settings)
    train_checkpoint(settings, progress)


def train_checkpoint(settings: Settings, progress: Progress) -> object:
    """Train the baseline of ``[train]`` into ``[model] checkpoint``, with a lock on that file."""
    checkpoint = settings.model.checkpoint
    lock = checkpoint.with_name(f".{checkpoint.name}.lock")
    with hold(lock, f"on {checkpoint}", "choose another file with --checkpoint"):
        return _resolve(TRAIN)(settings, progress)
