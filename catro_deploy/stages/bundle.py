"""``bundle``: a package for devices that cannot be reached, to verify and measure both networks; and their results."""

import shutil
from pathlib import Path

from catro_deploy.agent.wire import to_json
from catro_deploy.errors import RunFolderError
from catro_deploy.files import replacing, write_text
from catro_deploy.progress import Progress, Silent
from catro_deploy.records import Build
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import from_device
from catro_deploy.settings import Settings, settings_text
from catro_deploy.stages.bench import bench_errand, measured
from catro_deploy.stages.build import build_errand, needs_engines
from catro_deploy.stages.logits import logits_on_device
from catro_deploy.stages.verify import verify_errand
from catro_deploy.targets import load_target
from catro_deploy.transports import run_job
from catro_deploy.transports.bundle import write_bundle
from catro_deploy.transports.reach import require_reachable

__all__ = ["bundle", "take_in"]


def bundle(settings: Settings, run: RunFolder, progress: Progress) -> Path:
    """Write bundle.tar: the agent, both ONNX files, the test images, and a README of one command.

    Results of an earlier bundle are removed, since they do not belong to this one.

    Raises:
        TargetError: the agent cannot run networks on such a target.
        RunFolderError: an ONNX file is missing.
        DataError: the dataset is not the plan's.
    """
    target = load_target(settings.prune.target)
    require_reachable(target, str(run.carried), "bundle")
    with run.lock(), verify_errand(settings, run) as verifying:
        building = [build_errand(settings, run)] if needs_engines(target) else []
        write_bundle(run.bundle, [*building, verifying, bench_errand(settings, run)], run.path, target.title)
        write_text(run.settings, settings_text(settings))  # results are read with the same settings
        run.carried.unlink(missing_ok=True)
    progress.note(f"carry {run.bundle} to the device; its README says what to run there")
    return run.bundle


def take_in(results: Path, settings: Settings, run: RunFolder) -> None:
    """Copy ``results``, which the device wrote, to ``run``: verify and bench then read theirs from there.

    Raises:
        RunFolderError: there is no such file, it is damaged, or of another run; earlier results are kept.
        MessageError: an answer in it is invalid; earlier results are kept.
    """
    if not results.is_file():
        raise RunFolderError(f"There is no file {results}.", "On the device: python3 agent.pyz do")
    source = str(results.absolute())
    with run.lock():
        _require_answers(source, settings, run)
        with replacing(run.carried) as temporary:
            shutil.copyfile(source, temporary)


def _require_answers(source: str, settings: Settings, run: RunFolder) -> None:
    """Check that the file ``source`` contains what the stages need."""
    quiet = Silent()
    if needs_engines(load_target(settings.prune.target)):
        building = build_errand(settings, run)
        from_device(Build, to_json(run_job(source, building.job, run.path, building.files).engines), source)
    with verify_errand(settings, run) as verifying, quiet.task("", 0) as task:
        logits_on_device(run, verifying, source, len(load_plan(run).classes), task, quiet.note)
    measured(settings, run, source, quiet)
