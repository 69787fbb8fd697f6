"""Rows of a benchmark: networks pruned and fine-tuned separately, evaluated alike, each in a separate process."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from benchmarks.common import environment, processor, read_result, write_result
from benchmarks.provenance import SOURCES, is_current
from catro_deploy.data import Subset, open_dataset
from catro_deploy.data.base import Split
from catro_deploy.data.pixels import normalise
from catro_deploy.files import text_hash, write_json
from catro_deploy.networks import load
from catro_deploy.progress import Progress, Silent
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.outside import checkpoint_hash
from catro_deploy.training.evaluate import accuracy, predict

__all__ = [
    "Row",
    "accuracy_of_original",
    "finetune_and_judge",
    "finish_in_own_process",
    "gpu_of",
    "lacks_feature_maps",
    "marks",
    "retake_statistics_",
    "run_missing",
]

BATCH_SIZE = 256
# Images on which batch norm statistics are re-estimated.
STATISTICS_IMAGES = 4096


class Row(Protocol):
    """A frozen dataclass that identifies one network of a benchmark."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Key in the results and name of the run folder."""


def finetune_and_judge(row: Row, settings: Settings, work: Path, progress: Progress | None = None) -> None:
    """Fine-tune the pruned network of ``row``; write accuracies on test images and sizes to a file next to its folder.

    Accuracies are fractions, sizes shares of the original's. The untrained accuracy is that of the network after the
    cut with re-estimated batch norm statistics, or after reconstruction. All are evaluated on the device of the
    training; the original once for all rows of ``work`` that have the same network, task and device.
    """
    run = RunFolder(work / row.name)
    with run.lock():
        history = finetune(settings, run, progress or Silent())
    plan = load_plan(run)
    channels, height, width = plan.input_shape
    data = open_dataset(settings.data, (height, width), channels)
    train, test = (Subset(split, plan.class_indices) for split in (data.train, data.test))

    def judged(weights: Literal["finetuned", "original", "pruned"]) -> float:
        network = load(run, weights=weights)
        if weights == "pruned" and not settings.prune.reconstruct:
            retake_statistics_(network, train, plan)
        return accuracy(predict(network, test, plan.mean, plan.std, BATCH_SIZE, history.device), test.labels)

    untrained = judged("pruned")
    result = {
        **asdict(row),
        "accuracy": judged("finetuned") if settings.finetune.epochs else untrained,
        "original_accuracy": accuracy_of_original(lambda: judged("original"), settings, history.device, work),
        "untrained_accuracy": untrained,
        "validation_accuracy": history.validation_accuracy,
        "test_images": len(test.labels),
        "macs_share": plan.pruned_macs / plan.original_macs,
        "params_share": plan.pruned_params / plan.original_params,
        "widths": {group.name: len(group.kept) for group in plan.groups},
        "dropped": list(plan.dropped),
        "rounds": len(plan.latency.rounds) if plan.latency else None,
        "epochs": settings.finetune.epochs,
        "finetune_seconds": history.seconds,
        "trained_on": trained_on(history.device),
        "settings": settings.model_dump(mode="json", include={"prune", "finetune"}),
    }
    write_json(work / f"{row.name}.json", result)


def accuracy_of_original(judge: Callable[[], float], settings: Settings, device: str, work: Path) -> float:
    """What ``judge`` finds, or a previous call found, for the unpruned network of ``settings``, on their task."""
    model, data = (settings.model_dump(mode="json")[section] for section in ("model", "data"))
    task = [checkpoint_hash(settings), model, data, [str(name) for name in settings.prune.classes], device]
    known = work / f"original-{text_hash(json.dumps(task))[:16]}.json"
    if not known.is_file():
        write_json(known, judge())
    return float(json.loads(known.read_text(encoding="utf-8")))


def trained_on(device: str) -> dict[str, str]:
    """The name of a training's ``device``, which is ``cpu`` or ``cuda``, and PyTorch's version."""
    name = torch.cuda.get_device_name() if device == "cuda" else processor()
    return {"device": name, "torch": torch.__version__}


def gpu_of(result: Mapping[str, Any]) -> str | None:
    """The GPU that trained the row of ``result``, if one did."""
    device = str(result.get("trained_on", {}).get("device", ""))
    return device if "NVIDIA" in device else None


def lacks_feature_maps(result: Mapping[str, Any]) -> bool:
    """Whether the row of ``result`` was fine-tuned with the recipe gentle before it learned feature maps."""
    finetuning = result.get("settings", {}).get("finetune", {})
    trained = result.get("recipe") == "gentle" and finetuning.get("epochs")
    return bool(trained) and "distill_features" not in finetuning


def marks(results: Sequence[Mapping[str, Any]]) -> str:
    """Marks behind the accuracy of these rows in a table: trained on a GPU (*), before the recipe changed (°)."""
    return ("*" if any(map(gpu_of, results)) else "") + ("°" if any(map(lacks_feature_maps, results)) else "")


def retake_statistics_(network: nn.Module, train: Split, plan: Plan) -> None:
    """Reset the means and variances in the batch norms of ``network``, and estimate them on plain training images."""
    # Shuffled, since a batch of one class has that class's statistics.
    order = np.random.default_rng(0).permutation(len(train.labels))[:STATISTICS_IMAGES]
    pieces = np.array_split(order, -(-len(order) // BATCH_SIZE))
    update_bn((normalise(train.images(piece), plan.mean, plan.std) for piece in pieces), network)


def finish_in_own_process(module: str, row: Row, work: Path, flags: Mapping[str, object]) -> dict[str, Any]:
    """Run ``python -m module --row=... --FLAG=VALUE ...`` and return the result that it wrote next to the row's folder.

    Rows can run in parallel this way, on one thread each; the output of a row is written to a log next to its folder.
    An existing result is used, unless flags request other epochs: a finished fine-tuning would start again, and the row
    may have been trained on another machine.
    """
    written = work / f"{row.name}.json"
    if written.is_file() and flags.get("epochs") in (None, (before := json.loads(written.read_text())).get("epochs")):
        return dict(before)
    print(f"{row.name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", module, f"--row={json.dumps(asdict(row))}", f"--work={work}"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    with (work / f"{row.name}.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    result: dict[str, Any] = json.loads(written.read_text())
    said = result["unmet"] if "unmet" in result else f"{result['accuracy']:.2%} on the test images"
    print(f"{row.name}: {said}", file=sys.stderr, flush=True)
    return result


def run_missing(
    module: str,
    name: str,
    rows: Iterable[Row],
    work: Path,
    flags: Mapping[str, object],
    jobs: int = 1,
    *,
    stale: bool = False,
) -> None:
    """Run the ``rows`` that benchmarks/results/``name`` lacks by ``finish_in_own_process``; store each at once.

    ``jobs`` run in parallel, for a GPU that one training does not saturate; latencies must not be measured then. A row
    that fails is reported and skipped. With ``stale``, rows that older code made are run again.
    """
    work.mkdir(parents=True, exist_ok=True)
    writing = Lock()

    def run(row: Row) -> None:
        stored = read_result(name).get("rows", {})
        if row.name in stored and not (stale and not is_current(stored[row.name], SOURCES)):
            return
        try:
            result = finish_in_own_process(module, row, work, flags)
        except Exception as error:
            print(f"{row.name}: {error}", file=sys.stderr)
            return
        with writing:
            stored = read_result(name).get("rows", {}) | {row.name: {**result, "environment": environment()}}
            write_result(name, {"rows": dict(sorted(stored.items()))})

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, rows))
