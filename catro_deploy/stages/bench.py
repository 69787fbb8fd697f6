"""``bench``: latency of the original and the pruned ONNX file, measured in turns by the device's agent."""

from collections.abc import Mapping
from typing import Any

from catro_deploy.calibration import LatencyProtocol, load_latency_protocol
from catro_deploy.errors import FaultError, MissedError
from catro_deploy.files import file_hash
from catro_deploy.progress import Progress
from catro_deploy.records import Bench, Precision
from catro_deploy.report.latency import budget_used
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import from_device, save
from catro_deploy.settings import Settings
from catro_deploy.stages.served import served_models, served_precisions
from catro_deploy.targets import Target, load_target
from catro_deploy.transports import device_of, reached, run_job
from catro_deploy.transports.bundle import Errand
from catro_deploy.transports.execution import use_of
from catro_deploy.transports.reach import require_reachable

__all__ = ["bench", "bench_errand"]

# For loading both models, one last turn of very slow ones, and the bootstrap.
GRACE_S = 600


def bench(settings: Settings, run: RunFolder, progress: Progress) -> Bench:
    """Measure both ONNX files of ``run`` as ``settings.bench`` says; write and return bench.json.

    Raises:
        TargetError: networks cannot be run on the target from here.
        RunFolderError, ModelError: an ONNX file is missing, corrupt, or of another plan.
        UsageError: the files take another number of images at a time.
        FaultError: the agent crashed or did not end.
        MissedError: the pruned model is slower, or misses its budget of latency; bench.json is written before.
    """
    target, device = load_target(settings.prune.target), device_of(settings.prune.device, run)
    require_reachable(target, device, "bench")
    errand, protocol = bench_errand(settings, run), load_latency_protocol(settings.bench.protocol)
    job = errand.job
    measured = _measure(device, errand, run, protocol, progress)
    content = {
        "original": measured["original"],
        "pruned": measured["pruned"],
        "speedup": measured["speedup"],
        "mode": measured["mode"],
        "further": measured["further"],
        **{key: measured[key] for key in ("trtexec", "energy") if measured.get(key)},
        "protocol": {"name": settings.bench.protocol, **job["protocol"]},
        "environment": {
            "reached": reached(device),
            **_environment(target, job, measured, run, served_precisions(run, settings)),
        },
        "warnings": measured["warnings"],
    }
    record = from_device(Bench, content, device)
    save(record, run)
    low, high = record.speedup.ci95
    if high < 1:
        raise MissedError(
            f"The pruned model is slower: it runs at {low:.2f} to {high:.2f} times the original's speed.",
            f"The times are in {run.bench}. Multiply-accumulates are not latency: try --budget 0.5x.",
        )
    plan = load_plan(run)
    used = budget_used(plan, record)
    if used.unit != "flops" and used.outcome == "missed":
        raise MissedError(
            f"The budget {plan.budget} is not met: {used.used:.4g} {used.unit} measured.",
            "Prune again with what is measured now: catro-deploy run --force; or allow more with --budget.",
        )
    return record


def bench_errand(settings: Settings, run: RunFolder) -> Errand:
    """The measurement of both ONNX files of ``run``.

    Raises:
        RunFolderError: an ONNX file is missing.
    """
    protocol = load_latency_protocol(settings.bench.protocol)
    target = load_target(settings.prune.target)
    use = use_of(target, settings)
    batches = dict.fromkeys([use.batch, *settings.bench.batches])
    job = {
        "job": "bench",
        **use.opening,
        "modes": [{"batch": batch, **way} for batch in batches for way in use.ways],
        "protocol": protocol.model_dump(),
        "beside": True,
        "models": served_models(run, served_precisions(run, settings)),
    }
    files = [model["file"] for model in job["models"].values()]
    limit_s = len(job["modes"]) * (protocol.warmup_s + protocol.limit_s) + GRACE_S
    return Errand("Measuring", job, files, limit_s)


def _measure(
    device: str, errand: Errand, run: RunFolder, protocol: LatencyProtocol, progress: Progress
) -> dict[str, Any]:
    planned_s = len(errand.job["modes"]) * (protocol.warmup_s + protocol.seconds)
    with progress.task("Measuring both networks", planned_s) as task:
        reached_s = 0.0
        for event in run_job(device, errand.job, run.path, errand.files, limit_s=errand.limit_s, note=progress.note):
            if event["event"] == "result":
                task.advance(planned_s - reached_s)
                result: dict[str, Any] = event["result"]
                return result
            task.advance(min(event["seconds"], planned_s) - reached_s)
            reached_s = min(event["seconds"], planned_s)
    raise FaultError("The process that measures ended without a result.", "Run it again: catro-deploy bench")


def _environment(
    target: Target,
    job: Mapping[str, Any],
    measured: Mapping[str, Any],
    run: RunFolder,
    precisions: Mapping[str, Precision],
) -> dict[str, Any]:
    models = {
        name: {"file": model["file"], "sha256": file_hash(run.path / model["file"])}
        for name, model in job["models"].items()
    }
    return {
        "target": target.name,
        "how": "measured",
        **measured["facts"],
        "precision": " and ".join(dict.fromkeys(precisions.values())),
        "threads": job["threads"],
        "batch": measured["mode"]["batch"],
        "transfers": _transfers(measured["mode"], target),
        "models": models,
    }


def _transfers(mode: Mapping[str, Any], target: Target) -> str:
    """What copying the first mode counts, in words."""
    if target.kind == "cpu":
        return "none: inputs and outputs stay in the memory of the CPU"
    counted = mode.get("transfers", True)  # a runtime that knows no modes copies each time
    return "counted: images to the GPU, logits back" if counted else "not counted: what the GPU computes"
