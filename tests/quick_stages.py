"""A pipeline of the real shape whose stages take no time: they write small files, and a diary of what ran.

``QUICK_EPOCH_S`` makes an epoch last; ``QUICK_FAIL=stage:what`` makes a stage fail as something real would.
"""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

from catro_deploy.errors import DataError, MissedError
from catro_deploy.files import write_json, write_text
from catro_deploy.pipeline import STAGES

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
        {"fault": _fault, "disk": _fill, "denied": _denied}[what](run)


def _fault(run):
    raise RuntimeError("a strange thing")


def _fill(run):
    (run.path / "large.bin").write_bytes(bytes(1_000_000))


def _denied(run):
    raise PermissionError(13, "Permission denied", "/data/image.png")


def search(settings, run, progress):
    _begin(run, "search")
    write_json(run.search, {"budget": "0.354x", "max_drop": settings.verify.max_drop})


def prune(settings, run, progress):
    _begin(run, "prune")
    if "no_such_class" in settings.prune.classes:
        raise DataError("There is no class 'no_such_class'.", "Did you mean such_class?")
    group = {
        "name": "g",
        "width": 16,
        "kept": [0, 3, 5],
        "producers": ["conv1", "conv2", "conv3"],
        "fixed": "",
    }
    plan = {"groups": [group], "budget": str(settings.prune.budget), "seed": settings.prune.seed}
    counts = {"original_macs": 1000, "pruned_macs": 500, "original_params": 200, "pruned_params": 90}
    write_json(run.plan, plan | counts)
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
    write_json(run.finetune, {"epochs": epochs, "seconds": 61.0, "device": "cpu"} | accuracies)
    write_text(run.weights, f"{len(epochs)} epochs")
    run.finetune_state.unlink(missing_ok=True)


def export(settings, run, progress):
    _begin(run, "export")
    write_text(run.original_onnx, f"original at opset {settings.export.opset}")
    write_text(run.pruned_onnx, f"{run.weights.read_text()} at opset {settings.export.opset}")


def quantize(settings, run, progress):
    _begin(run, "quantize")
    shipped = "fp32" if settings.quantize.precision == "auto" else settings.quantize.precision
    one = {"score": 0.98, "ratio": 0.5, "ratio_ci95": [0.49, 0.51], "us": 500.0, "lost": ""}
    write_json(run.quantize, {"shipped": shipped, "candidates": {shipped: one}, "lost": {}, "made": {}})
    if shipped != "fp32":
        write_text(run.onnx("pruned", shipped), f"{run.weights.read_text()} in {shipped}")


def build(settings, run, progress):
    _begin(run, "build")
    write_json(run.build, {})


def verify(settings, run, progress):
    _begin(run, "verify")
    of = {"torch": 0.98, "runtime": 0.98, "agreement": 1.0, "largest_logit_difference": 1e-6}
    limit = settings.verify.max_drop
    problems = [] if limit is None or limit >= DROP_POINTS else [f"Pruning cost {DROP_POINTS} points."]
    content = {
        "original": of,
        "pruned": of,
        "runtime": "onnxruntime",
        "test_images": 100,
        "problems": problems,
    }
    write_json(run.verify, content | {"accuracy_drop_points": DROP_POINTS, "max_drop": limit})
    if problems:
        raise MissedError("\n".join(problems), "See verify.json.")


def bench(settings, run, progress):
    _begin(run, "bench")
    of = {"p50_us": 1000.0, "p90_us": 1100.0, "p99_us": 1500.0, "n": 100}
    speedup = {"median": 1.5, "ci95": [1.4, 1.6]}
    write_json(run.bench, {"original": of, "pruned": of, "speedup": speedup, "warnings": []})


def ship(settings, run, progress):
    _begin(run, "ship")
    given = {"name": "image", "type": "float32", "shape": [1, 3, 8, 8], "layout": "NCHW", "colours": "RGB"}
    given |= {"values": "pixel / 255", "mean": [0.0], "std": [1.0], "range": [0.0, 1.0]}
    content = {"file": "pruned.onnx", "precision": "fp32", "bytes": 1500, "original_bytes": 3000}
    content |= {"input": given, "classes": ["a", "b"]}
    write_text(run.shipped.with_name("pruned.onnx"), run.pruned_onnx.read_text())
    write_json(run.shipped, content)


def report(settings, run, progress):
    _begin(run, "report")
    of = {"accuracy": 0.98, "macs": 1000, "params": 200, "latency_ms": {"p50": 1.0, "p90": 1.1, "p99": 1.5}}
    facts = {"target": "x86-cpu", "classes": ["a", "b"], "budget": str(settings.prune.budget), "warnings": []}
    outcome = {"accuracy_drop_points": DROP_POINTS, "verdict": "1.50x faster"}
    shipped = {"ship": run.read_json(run.shipped, "ship")}
    write_json(run.report("json"), facts | outcome | {"original": of, "pruned": of} | shipped)
    for suffix in ("md", "html"):
        write_text(run.report(suffix), "report")


def train(settings, progress):
    write_text(Path(settings.model.checkpoint), f"trained {settings.train.epochs} epochs")
