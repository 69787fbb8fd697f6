"""A pipeline with the real structure whose stages take no time: they write small files and a diary of what ran.

``QUICK_EPOCH_S`` is the duration of an epoch in seconds; ``QUICK_FAIL=stage:what`` simulates a real failure in a stage.
"""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

from catro_deploy.errors import DataError, MissedError
from catro_deploy.files import write_json, write_text
from catro_deploy.pipeline import STAGES
from catro_deploy.records import Bench, GroupPlan, Plan, Shipped, Verify
from catro_deploy.report.build import RunRecords, build_report
from catro_deploy.runs.records import load, load_if_there, save
from tests.report.made import (
    make_bench,
    make_build,
    make_candidate,
    make_finetune,
    make_plan,
    make_quantize,
    make_runtimes,
    make_samples,
    make_search,
    make_shipped,
    make_variants,
    make_verify,
)

TABLE = tuple(replace(stage, function=f"tests.quick_stages:{stage.name}") for stage in STAGES)
DROP_POINTS = 2.0


def diary(run):
    file = run.path / "diary.txt"
    return file.read_text().split() if file.is_file() else []


def _begin(run, name):
    with (run.path / "diary.txt").open("a") as file:
        file.write(f"{name}\n")
    stage, _, what = os.environ.get("QUICK_FAIL", "").partition(":")
    if stage == name:
        {"fault": _fault, "disk": _fill, "denied": _denied, "missed": _miss}[what](run)


def _fault(run):
    raise RuntimeError("a strange thing")


def _fill(run):
    (run.path / "large.bin").write_bytes(bytes(1_000_000))


def _denied(run):
    raise PermissionError(13, "Permission denied", "/data/image.png")


def _miss(run):
    raise MissedError("No network meets the budget 0.01x.", "Allow more.")


def search(settings, run, progress):
    _begin(run, "search")
    save(make_search(max_drop=settings.verify.max_drop), run)


def variants(settings, run, progress):
    _begin(run, "variants")
    save(make_variants(), run)


def prune(settings, run, progress):
    _begin(run, "prune")
    if "no_such_class" in settings.prune.classes:
        raise DataError("There is no class 'no_such_class'.", "Did you mean such_class?")
    group = GroupPlan("g", 16, (0, 3, 5), ("conv1", "conv2", "conv3"))
    counts = {"original_macs": 1000, "pruned_macs": 500, "original_params": 200, "pruned_params": 90}
    own = {"budget": str(settings.prune.budget), "settings": {"seed": settings.prune.seed}}
    save(replace(make_plan(), groups=(group,), **own, **counts), run)
    write_text(run.original_weights, "original")
    write_text(run.pruned_weights, f"pruned {settings.prune.seed}")


def finetune(settings, run, progress):
    _begin(run, "finetune")
    epochs = json.loads(run.finetune_state.read_text()) if run.finetune_state.is_file() else []
    with progress.task("Fine-tuning", settings.finetune.epochs, len(epochs)) as task:
        while len(epochs) < settings.finetune.epochs:
            time.sleep(float(os.environ.get("QUICK_EPOCH_S", 0)))
            epochs.append({"epoch": len(epochs) + 1})
            _begin(run, f"epoch-{len(epochs)}")
            write_json(run.finetune_state, epochs)
            task.advance()
            task.describe("validation accuracy 98.00%")
    accuracies = {"validation_accuracy": 0.98, "baseline_validation_accuracy": 0.5}
    save(make_finetune(len(epochs), seconds=61.0, **accuracies), run)
    write_text(run.weights, f"{len(epochs)} epochs")
    run.finetune_state.unlink(missing_ok=True)


def export(settings, run, progress):
    _begin(run, "export")
    write_text(run.original_onnx, f"original at opset {settings.export.opset}")
    write_text(run.pruned_onnx, f"{run.weights.read_text()} at opset {settings.export.opset}")


def quantize(settings, run, progress):
    _begin(run, "quantize")
    shipped = "fp32" if settings.quantize.precision == "auto" else settings.quantize.precision
    candidate = make_candidate(ratio=0.5)
    save(make_quantize(shipped=shipped, candidates={shipped: candidate}, lost={}), run)
    if shipped != "fp32":
        write_text(run.onnx("pruned", shipped), f"{run.weights.read_text()} in {shipped}")


def build(settings, run, progress):
    _begin(run, "build")
    save(make_build(), run)


def verify(settings, run, progress):
    _begin(run, "verify")
    limit = settings.verify.max_drop
    problems = () if limit is None or limit >= DROP_POINTS else (f"Pruning cost {DROP_POINTS} points.",)
    drop = {"accuracy_drop_points": DROP_POINTS, "max_drop": limit}
    save(make_verify(0.98, 0.96, test_images=100, problems=problems, passed=not problems, **drop), run)
    if problems:
        raise MissedError("\n".join(problems), "See verify.json.")


def bench(settings, run, progress):
    _begin(run, "bench")
    calls = make_samples([1000.0] * 89 + [1100.0] * 9 + [1500.0] * 2)
    save(make_bench(1.5, 1.4, 1.6, original=calls, pruned=calls, warnings=()), run)


def runtimes(settings, run, progress):
    _begin(run, "runtimes")
    save(make_runtimes(), run)


def ship(settings, run, progress):
    _begin(run, "ship")
    write_text(run.shipped.with_name("pruned.onnx"), run.pruned_onnx.read_text())
    save(make_shipped(file="pruned.onnx", precision="fp32", classes=("a", "b"), bytes=1500, original_bytes=3000), run)


def report(settings, run, progress):
    _begin(run, "report")
    records = {"verify": load_if_there(Verify, run), "bench": load_if_there(Bench, run), "shipped": load(Shipped, run)}
    save(build_report(RunRecords("a-run", load(Plan, run), **records)), run)
    for suffix in ("md", "html"):
        write_text(run.report(suffix), "report")


def train(settings, progress):
    write_text(Path(settings.model.checkpoint), f"trained {settings.train.epochs} epochs")
