"""``runtimes``: compare the same networks in every available runtime, to decide which one to ship for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.agent.device import flat
from catro_deploy.agent.events import Event
from catro_deploy.agent.events import Progress as Measured
from catro_deploy.agent.jobs import BenchProtocol, CompareJob, ModelFile
from catro_deploy.agent.results import ComparedTiming, CompareResult
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.data.base import is_unlabelled
from catro_deploy.graph.onnx.ir import ir_of, write_ir
from catro_deploy.progress import Progress
from catro_deploy.records import Plan, Precision, RuntimeRow, Runtimes, Speedup
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import save
from catro_deploy.settings import Settings
from catro_deploy.stages.logits import logits_errand, logits_on_device, packed
from catro_deploy.stages.served import model_of, served_precisions
from catro_deploy.stages.verify import test_images
from catro_deploy.targets import load_target
from catro_deploy.transports import device_of, reached, run_job
from catro_deploy.transports.execution import Use, use_of
from catro_deploy.transports.reach import compared_runtimes, require_reachable

__all__ = ["environment_of", "name_of", "runtimes", "timed_by"]

GRACE_S = 600
Networks = Mapping[str, tuple[str, Precision]]
"""Network and precision, by their name in jobs."""


def runtimes(settings: Settings, run: RunFolder, progress: Progress) -> Runtimes:
    """Time and verify the networks of ``run`` in each runtime of ``settings.bench``; write and return runtimes.json.

    These are the original and the pruned network in the target's own precision, and the pruned one as it is served.

    Raises:
        TargetError: networks cannot be run on the target from here.
        UsageError: a runtime does not run ONNX files on such a target.
        RunFolderError, ModelError: the plan or a file is missing, corrupt, or stale.
        RuntimeMissingError: none of the runtimes is installed there.
    """
    target, device = load_target(settings.prune.target), device_of(settings.prune.device, run)
    require_reachable(target, device, "bench")
    plan, use = load_plan(run), use_of(target, settings)
    shipped = served_precisions(run, settings)["pruned"]
    own = target.precision
    pairs: list[tuple[str, Precision]] = [("original", own), ("pruned", own), ("pruned", shipped)]
    networks = {" in ".join(pair): pair for pair in dict.fromkeys(pairs)}
    models = {name: model_of(run, *pair) for name, pair in networks.items()}
    asked = compared_runtimes(target, settings.bench.runtimes)
    result = timed_by(settings, run, use, asked, models, device, progress)
    found, images = _accuracies(settings, run, plan, use, list(result.versions), models, device, progress)
    rows = [_row(one, networks[one.network], models[one.network].file, result, found) for one in result.timings]
    served = (target.runtime, "pruned", shipped)
    rows = [replace(row, served=(name_of(row), row.network, row.precision) == served) for row in rows]
    fastest = min((i for i, row in enumerate(rows) if row.network == "pruned"), key=lambda i: rows[i].p50_us)
    rows[fastest] = replace(rows[fastest], files=_files(run.path / rows[fastest].files[0], name_of(rows[fastest])))
    record = Runtimes(
        rows=tuple(rows),
        fastest=fastest,
        missing=dict(result.missing),
        test_images=images,
        warnings=result.warnings,
        environment=environment_of(settings, use, device, result),
    )
    save(record, run)
    return record


def timed_by(
    settings: Settings,
    run: RunFolder,
    use: Use,
    asked: Sequence[str],
    models: Mapping[str, ModelFile],
    device: str,
    progress: Progress,
) -> CompareResult:
    """Latencies of ``models``, files in ``run``, in each of the runtimes ``asked``, interleaved.

    Raises:
        ModelError: one cannot be run.
        RuntimeMissingError: none of the runtimes is installed there.
    """
    protocol = load_latency_protocol(settings.bench.protocol)
    job = CompareJob(use.runtime, tuple(asked), models, use.threads, use.batch, BenchProtocol(**protocol.model_dump()))
    planned_s, reached_s = protocol.warmup_s + protocol.seconds, 0.0
    with progress.task("Comparing runtimes", planned_s) as task:

        def advance(event: Event) -> None:
            nonlocal reached_s
            if isinstance(event, Measured):
                task.advance(min(event.seconds, planned_s) - reached_s)
                reached_s = min(event.seconds, planned_s)

        files = [model.file for model in models.values()]
        limit_s = protocol.warmup_s + protocol.limit_s + GRACE_S
        return run_job(device, job, run.path, files, limit_s=limit_s, note=progress.note, on_event=advance)


def environment_of(settings: Settings, use: Use, device: str, result: CompareResult) -> dict[str, Any]:
    """Where and how ``result`` was measured."""
    return {
        "target": use.target,
        "reached": reached(device),
        **flat(result.device),
        "threads": use.threads,
        "batch": use.batch,
        "protocol": settings.bench.protocol,
    }


def _accuracies(
    settings: Settings,
    run: RunFolder,
    plan: Plan,
    use: Use,
    names: Sequence[str],
    models: Mapping[str, ModelFile],
    device: str,
    progress: Progress,
) -> tuple[dict[tuple[str, str], float], int]:
    """Accuracy on the test images by runtime and network, empty without labels; and the number of images."""
    test = test_images(settings, plan)
    labels: NDArray[np.int64] = test.labels
    if is_unlabelled(labels):
        return {}, len(labels)
    found: dict[tuple[str, str], float] = {}
    with (
        progress.task("Verifying each runtime", len(names) * len(models) * len(labels)) as task,
        packed(run, test, plan, settings.verify.batch_size),
    ):
        for name in names:
            errand = logits_errand("Verifying", settings, run, plan, replace(use, runtime=name), models)
            logits, _ = logits_on_device(run, errand, device, len(plan.classes), task, progress.note)
            found |= {(name, key): float((of.argmax(axis=1) == labels).mean()) for key, of in logits.items()}
    return found, len(labels)


def _row(
    one: ComparedTiming,
    pair: tuple[str, Precision],
    file: str,
    result: CompareResult,
    accuracies: Mapping[tuple[str, str], float],
) -> RuntimeRow:
    return RuntimeRow(
        runtime=f"{one.runtime} {result.versions[one.runtime]}",
        network=pair[0],
        precision=pair[1],
        p50_us=one.timing.p50_us,
        speedup=Speedup(one.speedup.median, one.speedup.ci95),
        accuracy=accuracies.get((one.runtime, one.network)),
        files=(file,),
        served=False,
    )


def _files(onnx: Path, runtime: str) -> tuple[str, ...]:
    """The files of the network in ``onnx`` that ``runtime`` reads best: IR for OpenVINO, written if it is missing."""
    if runtime.partition("-")[0] != "openvino":
        return (onnx.name,)
    made = ir_of(onnx)
    return tuple(path.name for path in (made if all(path.is_file() for path in made) else write_ir(onnx)))


def name_of(row: RuntimeRow) -> str:
    """The runtime without its version."""
    return row.runtime.partition(" ")[0]
