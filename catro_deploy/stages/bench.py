"""``bench``: interleaved latency of the original and the pruned ONNX file, measured by the device's agent."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from catro_deploy.agent.device import flat
from catro_deploy.agent.events import Event
from catro_deploy.agent.events import Progress as Measured
from catro_deploy.agent.jobs import BenchJob
from catro_deploy.agent.results import BenchFacts, BenchResult, Mode
from catro_deploy.agent.wire import to_json
from catro_deploy.budget import MEDIAN
from catro_deploy.calibration import load_int8_recipe, load_latency_protocol
from catro_deploy.errors import MissedError
from catro_deploy.files import file_hash
from catro_deploy.latency.repetition import MEASUREMENTS, Repetition
from catro_deploy.progress import Progress
from catro_deploy.records import Bench, LatencyPlan, Plan, Precision, Quantize, Speedup
from catro_deploy.report.budgets import budget_figures, missed_words
from catro_deploy.report.latency import budget_used
from catro_deploy.report.verdict import budget_words
from catro_deploy.report.wording import ratios
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import from_device, load, save
from catro_deploy.settings import Settings
from catro_deploy.stages.recount import recounted
from catro_deploy.stages.served import served_models, served_precisions
from catro_deploy.targets import Target, load_target
from catro_deploy.transports import device_of, is_carried, reached, run_job
from catro_deploy.transports.bundle import Errand
from catro_deploy.transports.execution import Use, bench_job, use_of
from catro_deploy.transports.reach import require_reachable
from catro_deploy.transports.sides import sides_of
from catro_deploy.units import counted

__all__ = ["bench", "bench_errand", "measured"]

# For loading both models, a last turn of very slow ones, and the bootstrap.
GRACE_S = 600
# If the original takes this many times as long as when the widths were chosen, the machine is not only disturbed: the
# conditions differ, for example by another batch size or number of threads.
OTHER_CONDITIONS = 1.5
# Less is 0% when printed.
LEAST_SLOWER = 0.005
AGAIN = "Prune again with new measurements: catro-deploy run --force; or allow more with --budget."
# Fields of a result that bench.json contains unchanged.
RECORDED = (
    *("original", "pruned", "speedup", "mode", "further"),
    *("trtexec", "benchmark_app", "energy", "soak", "warnings"),
)


def bench(settings: Settings, run: RunFolder, progress: Progress) -> Bench:
    """Measure both ONNX files of ``run`` as ``settings.bench`` says; write and return bench.json.

    Raises:
        TargetError: networks cannot be run on the target from here.
        RunFolderError, ModelError: an ONNX file is missing, corrupt, or of another plan.
        UsageError: the files are for another batch size.
        FaultError: the agent crashed or did not finish.
        MissedError: the pruned model is slower, or misses a latency or energy budget; bench.json is written first.
    """
    first, *others = sides_of(settings)
    plan, again = load_plan(run), _again(settings, run)
    record = _undisturbed(settings, run, device_of(first.device, run), plan.latency, progress)
    also = {
        side.name: _undisturbed(side.settings, run, side.device, plan.latency_on.get(side.name), progress)
        for side in others
    }
    record = replace(record, also=also)
    save(record, run)
    for name, found in ({first.name: record} | also).items():
        _require_met(plan, found, f" on {name}" if also else "", run, again)
    if missed := missed_words(budget_figures(plan, record, None), ("latency", "energy")):
        raise MissedError(missed, again)
    return record


def _again(settings: Settings, run: RunFolder) -> str:
    """How to get a network that meets a missed budget.

    In int8, channels are chosen by the latency with every layer quantised that the recipe does not keep. The recipe
    that ``quantize`` has written to ``run`` also keeps the further layers that had to stay in floating point.
    """
    if settings.quantize.precision != "int8":
        return AGAIN
    decided = load(Quantize, run)
    kept = decided.integers.kept if decided.shipped == "int8" and decided.integers else None
    more = set(kept or ()).difference(load_int8_recipe(settings.quantize.recipe).keep)
    if not more:
        return AGAIN
    which = counted(len(more), "layer stays", "layers stay")
    return (
        f"In int8 {which} in floating point to keep the accuracy, which the predicted latency did not include. To "
        f"prune with that included: catro-deploy run --recipe {run.calibration}; or train for int8: --qat-epochs 2"
    )


def _require_met(plan: Plan, record: Bench, where: str, run: RunFolder, again: str) -> None:
    """Check that the network is not slower than the original and meets the budget that its widths were chosen by.

    Raises:
        MissedError: it does not.
    """
    if record.speedup.ci95[1] < 1:
        low, high = ratios(*record.speedup.ci95)
        raise MissedError(
            f"The pruned network is slower{where}: it runs at {low} to {high} times the original's speed.",
            f"The times are in {run.bench}. Multiply-accumulates are not latency: try --budget 0.5x.",
        )
    used = budget_used(plan, record)
    if used.unit != "flops" and used.outcome == "missed":
        measured = budget_words(used, used.used)
        raise MissedError(f"The budget {plan.budget} is not met{where}: {measured} measured.", again)


def _undisturbed(
    settings: Settings, run: RunFolder, device: str, latency: LatencyPlan | None, progress: Progress
) -> Bench:
    """Measure, again if it was disturbed: the original should be as fast as when the widths were chosen.

    A soak and results that were carried here are not repeated.
    """
    if settings.bench.soak or is_carried(device):
        return measured(settings, run, device, progress)
    measurements = (measured(settings, run, device, progress) for _ in range(MEASUREMENTS))
    first = next(measurements)
    rounds_us = [one.original_us for one in latency.rounds] if latency else []
    known_us = [us for us in rounds_us if first.original.p50_us < OTHER_CONDITIONS * us]
    repetition = Repetition[Bench](_figures, {MEDIAN: min(known_us, default=math.inf)})
    record, count = repetition.repeat(chain([first], measurements).__next__)
    if count == 1:
        return record
    slower = record.original.p50_us / repetition.fastest_original_us[MEDIAN] - 1
    words = f"The machine was disturbed. Of {count} measurements, the least disturbed counts"
    if slower >= LEAST_SLOWER:
        words += f": in it, the original takes {slower:.0%} longer than in its fastest measurement"
    return replace(record, warnings=(*record.warnings, f"{words}."))


def _figures(found: Bench) -> tuple[Speedup, Mapping[int, float]]:
    return found.speedup, {MEDIAN: found.original.p50_us}


def measured(settings: Settings, run: RunFolder, device: str, progress: Progress) -> Bench:
    """Measure on ``device`` and return the record; nothing is written.

    Raises:
        As ``bench``, except MissedError.
        MessageError: the device's report is not such a measurement.
    """
    target = load_target(settings.prune.target)
    require_reachable(target, device, "bench")
    errand = bench_errand(settings, run)
    result = recounted(_measure(device, errand, run, progress), errand.job)
    found = to_json(result)
    if is_carried(device):  # bench would read the same file again
        found["warnings"] = [
            text.replace("catro-deploy bench --force", "catro-deploy bundle") for text in result.warnings
        ]
    content = {
        **{key: found[key] for key in RECORDED if key in found},
        "protocol": {"name": settings.bench.protocol, **to_json(errand.job.protocol)},
        "environment": {
            "reached": reached(device),
            **_environment(target, errand.job, result, run, served_precisions(run, settings)),
            **_interface(use_of(target, settings)),
        },
    }
    return from_device(Bench, content, device)


def bench_errand(settings: Settings, run: RunFolder) -> Errand[BenchJob]:
    """The job that measures both ONNX files of ``run``.

    Raises:
        RunFolderError: an ONNX file is missing.
    """
    protocol = load_latency_protocol(settings.bench.protocol)
    target = load_target(settings.prune.target)
    use = use_of(target, settings)
    modes = use.modes(list(dict.fromkeys([use.batch, *settings.bench.batches])))
    models = served_models(run, served_precisions(run, settings))
    soak_s = settings.bench.soak or 0.0
    job = bench_job(use, protocol, models, modes, complete=True, soak_s=soak_s)
    files = [model.file for model in models.values()]
    limit_s = len(modes) * (protocol.warmup_s + protocol.limit_s) + soak_s + GRACE_S
    return Errand("Measuring", job, files, limit_s)


def _measure(device: str, errand: Errand[BenchJob], run: RunFolder, progress: Progress) -> BenchResult:
    job, reached_s = errand.job, 0.0
    planned_s = len(job.modes) * (job.protocol.warmup_s + job.protocol.seconds) + job.soak_s
    with progress.task("Measuring both networks", planned_s) as task:

        def advance(event: Event) -> None:
            nonlocal reached_s
            if isinstance(event, Measured):
                seconds = min(event.seconds, planned_s)
                task.advance(seconds - reached_s)
                reached_s = seconds

        limit_s = errand.limit_s
        result = run_job(device, job, run.path, errand.files, limit_s=limit_s, note=progress.note, on_event=advance)
        task.advance(planned_s - reached_s)
        return result


def _environment(
    target: Target,
    job: BenchJob,
    measured: BenchResult,
    run: RunFolder,
    precisions: Mapping[str, Precision],
) -> dict[str, Any]:
    models = {
        name: {"file": model.file, "sha256": file_hash(run.path / model.file)} for name, model in job.models.items()
    }
    return {
        "target": target.name,
        "how": "measured",
        **_recorded(measured.facts),
        "precision": " and ".join(dict.fromkeys(precisions.values())),
        "threads": job.threads,
        "batch": measured.mode.batch,
        "transfers": _transfers(measured.mode, target),
        **({} if measured.mode.cuda_graph is None else {"launch": _launch(measured.mode)}),
        "models": models,
    }


def _interface(use: Use) -> dict[str, str]:
    """The networks' interface, if preprocessing or softmax is part of what is timed."""
    return {} if use.interface.is_plain else {"interface": use.interface.words}


def _recorded(facts: BenchFacts) -> dict[str, Any]:
    """``facts`` as one object; the suffix of a key of the state says when it was read."""
    return {
        **flat(facts.device),
        "runtime": facts.runtime,
        "providers": list(facts.providers),
        **({"properties": dict(facts.properties)} if facts.properties else {}),
        **{f"{key}_before": value for key, value in flat(facts.before).items()},
        "other_load_cores": facts.other_load_cores,
        **({f"{key}_during": value for key, value in to_json(facts.during).items()} if facts.during else {}),
        **{f"{key}_after": value for key, value in flat(facts.after).items()},
    }


def _launch(mode: Mode) -> str:
    """How an inference was launched on the GPU in the first mode."""
    return "as one CUDA graph" if mode.cuda_graph else "layer by layer"


def _transfers(mode: Mode, target: Target) -> str:
    """The copies that the first mode includes, in words."""
    if target.kind == "cpu":
        return "none: inputs and outputs stay in the memory of the CPU"
    counted = mode.transfers is not False  # a runtime without modes copies each time
    return "counted: images to the GPU, logits back" if counted else "not counted: what the GPU computes"
