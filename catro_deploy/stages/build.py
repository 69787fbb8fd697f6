"""``build``: TensorRT engines of both networks, built on the device that will run them."""

from contextlib import ExitStack
from typing import BinaryIO

from catro_deploy.agent.events import EngineBuilt, Event, FilePiece
from catro_deploy.agent.jobs import BuildJob
from catro_deploy.agent.pieces import decoded
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import DeviceError, TargetError
from catro_deploy.files import replacing
from catro_deploy.progress import Progress
from catro_deploy.records import Build
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import from_device, save
from catro_deploy.settings import Settings
from catro_deploy.stages.served import served_models, served_precisions
from catro_deploy.targets import Target, load_target
from catro_deploy.transports import device_of, run_job
from catro_deploy.transports.bundle import Errand
from catro_deploy.transports.execution import use_of
from catro_deploy.transports.reach import require_reachable

__all__ = ["build", "build_errand", "needs_engines"]

# For loading engines, timing rebuilt ones and sending them; building has its own limit.
LIMIT_S = 3600


def needs_engines(target: Target) -> bool:
    """Whether networks run on ``target`` as engines that are built there."""
    return target.runtime == "tensorrt"


def build(settings: Settings, run: RunFolder, progress: Progress) -> Build:
    """Build the engines of ``run`` on the device, copy them to the run folder; write and return build.json.

    The stages verify and bench use the engines on the device; the copies are for shipping. Engines of a device whose
    results were carried back stay there.

    Raises:
        TargetError: the target runs ONNX files directly, or cannot be reached from here.
        RunFolderError: an ONNX file is missing.
        ModelError: TensorRT cannot run a network.
        FaultError: an engine could not be built.
    """
    target, device = load_target(settings.prune.target), device_of(settings.prune.device, run)
    if not needs_engines(target):
        raise TargetError(
            f"{target.name} runs ONNX files directly with {target.runtime}: there is no engine to build.",
            "Engines are for targets with TensorRT: catro-deploy targets list",
        )
    require_reachable(target, device, "build")
    errand = build_errand(settings, run)
    builds = len(errand.job.models) * (1 + settings.build.rebuilds)
    with ExitStack() as stack:
        task = stack.enter_context(progress.task("Building TensorRT engines", builds))
        files: dict[str, BinaryIO] = {}

        def keep(event: Event) -> None:
            if isinstance(event, EngineBuilt):
                task.advance()
            if isinstance(event, FilePiece):
                if event.name not in errand.job.models:  # a device must not choose where files are written here
                    raise DeviceError(f"{device} sent an engine {event.name!r}, which was not requested.")
                if event.name not in files:
                    files[event.name] = stack.enter_context(replacing(run.engine(event.name))).open("wb")
                    stack.callback(files[event.name].close)
                files[event.name].write(decoded(event.base64))

        result = run_job(
            device,
            errand.job,
            run.path,
            errand.files,
            limit_s=errand.limit_s,
            note=progress.note,
            on_event=keep,
        )
        record = from_device(Build, to_json(result.engines), device)
        save(record, run)
        return record


def build_errand(settings: Settings, run: RunFolder) -> Errand[BuildJob]:
    """The job that builds the engines of both ONNX files of ``run``.

    Raises:
        RunFolderError: an ONNX file is missing.
    """
    target = load_target(settings.prune.target)
    use = use_of(target, settings)
    job = BuildJob(
        runtime=use.runtime,
        threads=use.threads,
        engine=use.engine,
        models=served_models(run, served_precisions(run, settings)),
        batch=use.batch,
        rebuilds=settings.build.rebuilds,
    )
    files = [model.file for model in job.models.values()]
    return Errand("Building TensorRT engines", job, files, LIMIT_S * len(files) * (1 + settings.build.rebuilds))
