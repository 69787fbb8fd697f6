"""Quantisation-aware fine-tuning: what calibration alone loses where integers are coarse, and what training recovers.

    python -m benchmarks.precision.qat --gtsrb FOLDER --weights FOLDER [--epochs 1]

MobileNetV2 at 64x64 for GTSRB's speed limits, unpruned; FOLDER holds its checkpoint mobilenet_v2.safetensors, the
result of six epochs of `catro-deploy train`. Every layer is in integers, with weights in seven bits (as on processors
without VNNI) and one scale for all channels of a layer, which harms depthwise convolutions most.
Accuracy of the ONNX files is measured in ONNX Runtime, on validation and on test images. Prints a table; writes
benchmarks/results/qat.json.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.common import environment, table, write_result
from benchmarks.precision.cases import WHOLE, Case
from benchmarks.precision.int8 import settings_of
from catro_deploy.calibration import load_int8_recipe
from catro_deploy.data.base import Split, Subset
from catro_deploy.data.pixels import normalise
from catro_deploy.precision.int8 import X86, quantised
from catro_deploy.precision.ranges import find_ranges
from catro_deploy.precision.sensitivity import logits_of
from catro_deploy.progress import Silent
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages.export import export
from catro_deploy.stages.integers import calibration_samples
from catro_deploy.stages.logits import dataset_of
from catro_deploy.stages.prune import prune
from catro_deploy.stages.qat import qat
from catro_deploy.statistics.agreement import accuracy_of

Proto = Any
"""An onnx.ModelProto, which has no type annotations."""

CASE = Case("MobileNetV2", "torchvision:mobilenet_v2", "mobilenet_v2.safetensors", "gtsrb", 64, ("speed_limits",))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gtsrb", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs/qat"), help="where the run folder goes")
    return parser.parse_args()


def opened(settings: Settings, run: RunFolder) -> Plan:
    """The plan of the run folder with the exported unpruned network, which is created if it does not exist."""
    with run.lock():
        if not run.plan.is_file():
            prune(settings, run, Silent())
            run.weights.write_bytes(run.pruned_weights.read_bytes())
        if not run.pruned_onnx.is_file():
            export(settings, run, Silent())
    return load_plan(run)


def measured(proto: Proto, splits: dict[str, Split], plan: Plan) -> dict[str, float]:
    """Accuracy of an ONNX network by split."""
    found = {}
    for name, split in splits.items():
        images = normalise(split.images(np.arange(len(split.labels))), plan.mean, plan.std)
        found[name] = accuracy_of(logits_of(proto, images.numpy()), split.labels)
    return found


def main() -> None:
    """Measure the three networks."""
    args = arguments()
    args.cifar10 = None
    settings = settings_of(CASE, WHOLE, args)
    tuned = settings.quantize.model_copy(update={"qat_epochs": args.epochs})
    distilled = settings.finetune.model_copy(update={"distill": 0.0, "ema": 0.0})
    settings = settings.model_copy(update={"quantize": tuned, "finetune": distilled})
    run = RunFolder(args.work / "mobilenet_v2")
    plan = opened(settings, run)
    dataset = dataset_of(settings, plan)
    train, validation, test = (
        Subset(split, plan.class_indices) for split in (dataset.train, dataset.validation, dataset.test)
    )
    source, recipe = onnx.load(run.pruned_onnx), load_int8_recipe("standard")
    samples = normalise(calibration_samples(train, plan, recipe).pixels, plan.mean, plan.std).numpy()
    ranges = find_ranges(source, samples, recipe.method, recipe.percentile)

    def in_integers(proto: Proto) -> Proto:
        return quantised(proto, ranges, X86, by_channel=False, narrow=True)

    splits: dict[str, Split] = {"validation": validation, "test": test}
    began = time.monotonic()
    trained, _ = qat(source, in_integers(source), (train, validation), settings, run, plan, Silent())
    seconds = time.monotonic() - began
    networks = {"float32": source, "calibrated": in_integers(source), "trained": in_integers(trained)}
    rows = {name: measured(proto, splits, plan) for name, proto in networks.items()}
    result = {
        "case": "MobileNetV2, 64x64",
        "epochs": args.epochs,
        "training_s": seconds,
        "rows": rows,
        "environment": environment(),
    }
    write_result("qat.json", result)
    shown = [[name, *(f"{accuracy:.2%}" for accuracy in row.values())] for name, row in rows.items()]
    print(table(("network", *splits), shown))


if __name__ == "__main__":
    main()
