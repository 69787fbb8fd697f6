"""What the stage commands share: finding settings and run folder, and showing results."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from catro_deploy.cli.console import make_progress, print_json, print_result
from catro_deploy.cli.faults import as_catro_error
from catro_deploy.cli.settings_flags import Flags
from catro_deploy.cli.stopping import not_hidden
from catro_deploy.cli.without_effect import require_effect
from catro_deploy.errors import CatroError, MissedError, RunFolderError, SettingsError
from catro_deploy.progress import Progress
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.listing import RUNS, WORK_FILE, newest_run, run_folders

if TYPE_CHECKING:
    from catro_deploy.settings import Settings

__all__ = [
    "CONFIG",
    "continue_run",
    "export_run",
    "own_settings",
    "settings_to_continue",
    "start_run",
    "with_weights",
    "work",
]

CONFIG = Path(WORK_FILE)
# Sections of flags that pruning alone can judge; those of later stages may be combined with flags of these.
NOT_LATER = ("data", "bench", "profile")


def own_settings(config: Path | None, flags: Flags) -> "Settings":
    """Settings of ``config`` or, without it, of catro.toml here, overridden by ``flags``.

    Raises:
        SettingsError: there is neither, and no flag names the model or the data.
    """
    from catro_deploy.settings import load_settings

    if config or CONFIG.is_file():
        return load_settings(config or CONFIG, flags)
    if not any(value for section in ("model", "data") for value in flags.get(section, {}).values()):
        raise SettingsError(
            f"There is no {CONFIG} here, in {Path.cwd()}.",
            "Write one: catro-deploy init; or, to try it on drawn traffic signs: catro-deploy init --demo",
        )
    return load_settings(None, flags)


def start_run(
    stages: tuple[str, ...],
    flags: Flags,
    config: Path | None,
    folder: Path | None,
    *,
    force: bool = False,
    keep: bool = False,
    as_json: bool = False,
) -> None:
    """Run ``stages`` from the first on, in ``folder`` or in the default folder for these settings.

    A run of more than pruning first trains a baseline or searches for a budget, if needed. A ``folder`` with settings
    keeps them, unless ``config`` is given.
    """
    from catro_deploy import pipeline
    from catro_deploy.stages.preconditions import check_settings

    progress, whole = make_progress(), len(stages) > 1
    settings = _settings_of(folder, flags) if folder and not config else None
    settings = settings or with_weights(own_settings(config, flags), progress)
    settings = _on_its_device(settings, progress)
    if whole:
        settings = pipeline.with_search(settings)
    check_settings(settings)
    require_effect(flags, [settings], None if whole else NOT_LATER)
    if whole:
        pipeline.ensure_checkpoint(settings, progress)
    settings = _with_size(settings)
    run = RunFolder(folder or RUNS / pipeline.run_folder_name(settings))
    work(stages, settings, run, progress, force=force, keep=keep, as_json=as_json)


def continue_run(
    stage: str,
    flags: Flags,
    config: Path | None,
    folder: Path | None,
    *,
    others: tuple[str, ...] = (),
    force: bool = False,
    keep: bool = False,
    as_json: bool = False,
) -> None:
    """Continue with ``stage`` and ``others`` in ``folder`` or the newest run, with its settings and ``flags``.

    An explicit ``config`` replaces the settings of the stages after the pruning.

    Raises:
        RunFolderError: there is no such run.
    """
    settings, run = settings_to_continue(stage, flags, config, folder)
    work((stage, *others), settings, run, make_progress(), force=force, keep=keep, as_json=as_json)


def bench_run(
    flags: Flags,
    config: Path | None,
    folder: Path | None,
    *,
    force: bool = False,
    keep: bool = False,
    as_json: bool = False,
) -> None:
    """Continue with ``bench`` like ``continue_run``, and compare runtimes if requested.

    Raises:
        RunFolderError: there is no such run.
    """
    settings, run = settings_to_continue("bench", flags, config, folder)
    stages = ("bench", "runtimes") if settings.bench.runtimes else ("bench",)
    work(stages, settings, run, make_progress(), force=force, keep=keep, as_json=as_json)


def export_run(
    flags: Flags,
    config: Path | None,
    folder: Path | None,
    *,
    force: bool = False,
    keep: bool = False,
    as_json: bool = False,
) -> None:
    """Export; for a target with engines also build and check them there or, if it cannot be reached, pack a bundle.

    Raises:
        RunFolderError: there is no such run.
    """
    from catro_deploy.settings import TARGETS_OWN
    from catro_deploy.stages.build import needs_engines
    from catro_deploy.targets import load_target
    from catro_deploy.transports.reach import reachable

    settings, run = settings_to_continue("export", flags, config, folder)
    progress = make_progress()
    settings = _on_its_device(settings, progress)
    target = load_target(settings.prune.target)
    there = reachable(target, settings.prune.device)
    stages = ("export", "build", "verify") if needs_engines(target) and there else ("export",)
    if settings.quantize.precision == TARGETS_OWN:
        stages = (*stages, "ship")
    else:
        progress.note("the precision, and with it the file to ship, is decided by: catro-deploy quantize")
    run = work(stages, settings, run, progress, force=force, keep=keep, as_json=as_json)
    if needs_engines(target) and not there and target.transport != "none":
        from catro_deploy.stages.bundle import bundle

        progress.note(f"{target.name} cannot be reached from here: build the engines there")
        bundle(settings, run, progress)


def with_weights(settings: "Settings", progress: Progress) -> "Settings":
    """``settings`` completed from their pretrained weights, see ``with_pretrained``."""
    if not settings.model.has_preprocessing:
        return settings
    from catro_deploy.stages.pretrained import with_pretrained

    return with_pretrained(settings, progress)


def _with_size(settings: "Settings") -> "Settings":
    """``settings`` with the size of the images, so that a run keeps it even if the images change."""
    if settings.data.size is not None:
        return settings
    from catro_deploy.stages.sizes import with_size

    return with_size(settings)


def _on_its_device(settings: "Settings", progress: Progress) -> "Settings":
    from catro_deploy.pipeline import with_target_of_device

    found = with_target_of_device(settings)
    if found.prune.device != settings.prune.device:
        progress.note(f"on {found.prune.device}, your only device of the target {found.prune.target}")
    return found


def settings_to_continue(
    stage: str, flags: Flags, config: Path | None, folder: Path | None
) -> "tuple[Settings, RunFolder]":
    """The settings with which ``stage`` continues in ``folder`` or the newest run, and that run.

    Raises:
        RunFolderError: there is no such run.
        SettingsError: a flag has no effect.
    """
    run = RunFolder(folder) if folder else _newest()
    settings = _settings_of(run.path, flags)
    if settings is None:
        raise RunFolderError(
            f"{run.path} is not a run folder: it has no run.toml.",
            f"Start a run there: catro-deploy prune --run {run.path}",
        )
    if config:
        pruned = {section: getattr(settings, section) for section in ("model", "data", "prune", "profile")}
        settings = _as_stage(stage, own_settings(config, flags), flags).model_copy(update=pruned)
        require_effect(flags, [settings], (stage,))
        return settings, run
    settings = _as_stage(stage, settings, flags)
    require_effect(flags, [settings], (stage,))
    own = _as_stage(stage, own_settings(None, flags), flags) if CONFIG.is_file() else settings
    if getattr(own, stage, None) != getattr(settings, stage, None):
        make_progress().note(
            f"settings are those of {run.settings}; to use [{stage}] of {CONFIG} instead: --config {CONFIG}"
        )
    return settings, run


def _as_stage(stage: str, settings: "Settings", flags: Flags) -> "Settings":
    """``settings`` as the command ``stage`` uses them: ``quantize`` tries all precisions if ``flags`` name none."""
    from catro_deploy.settings import AUTO, TARGETS_OWN
    from catro_deploy.targets import load_target

    if stage != "quantize" or settings.quantize.precision != TARGETS_OWN:
        return settings
    if flags.get("quantize", {}).get("precision") == TARGETS_OWN:
        own = load_target(settings.prune.target).precision
        problem = f"quantize tries precisions, and --precision target requests none: the target's own is {own}."
        raise SettingsError(problem, f"Name it: --precision {own}; or leave --precision out to try all.")
    return settings.model_copy(update={"quantize": settings.quantize.model_copy(update={"precision": AUTO})})


def _newest() -> RunFolder:
    """The run in which a stage finished most recently; a note reports that it is used."""
    run = newest_run(RUNS)
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.last_change()))
    others = "the only run" if len(run_folders(RUNS)) == 1 else "the newest run"
    make_progress().note(f"no --run given: using {run.path}, {others} in {RUNS}/ (last changed {changed})")
    return run


def _settings_of(folder: Path, flags: Flags) -> "Settings | None":
    from catro_deploy.settings import load_settings

    run = RunFolder(folder)
    return load_settings(run.settings, flags) if run.settings.is_file() else None


def work(
    stages: tuple[str, ...],
    settings: "Settings",
    run: RunFolder,
    progress: Progress,
    *,
    force: bool,
    keep: bool = False,
    as_json: bool,
) -> RunFolder:
    """Run ``stages`` and show the result of the last, and what to ship.

    They run in ``run`` or, with ``keep``, in a new folder if results would be replaced. If no network meets a budget,
    the JSON document says so in place of a result.

    Returns:
        The run folder that was used.
    """
    from catro_deploy import pipeline
    from catro_deploy.cli.results import RESULTS
    from catro_deploy.stages.table import RUNTIMES, SHIP

    try:
        if keep:
            run = pipeline.keep_earlier(stages, settings, run, force=force, table=pipeline.STAGES)
        progress.note(f"run folder: {run.path}")
        with not_hidden():
            missed = pipeline.run_stages(stages, settings, run, progress, force=force, table=pipeline.STAGES)
    except MissedError as error:  # by a stage without which later ones make no sense, such as pruning
        if as_json:
            print_json({"run": str(run.path), "missed": error.problem, "hint": error.hint})
        raise
    except CatroError:
        raise
    except Exception as error:
        raise as_catro_error(error, run.path) from error
    first, *others = shown = stages[-2:] if stages[-1] in (RUNTIMES, SHIP) else stages[-1:]
    found = {name: RESULTS[name].read(run) for name in shown}
    if as_json:
        contents = {name: RESULTS[name].as_json(one) for name, one in found.items()}
        print_json({"run": str(run.path)} | contents[first] | {name: contents[name] for name in others})
    else:
        for name, one in found.items():
            print_result(*RESULTS[name].show(one, run))
    if missed:
        raise missed
    return run
