"""int8 in OpenVINO: ours compared with NNCF's, and the gain of pruning over the unpruned network in int8.

    python -m benchmarks.precision.openvino_int8 --gtsrb FOLDER --cifar10 FOLDER --weights FOLDER --nncf PYTHON
        [--only resnet20] [--epochs 10]

PYTHON is that of an environment with nncf and openvino (pip install nncf openvino); NNCF is not needed otherwise. Both
calibrate on the same images; NNCF with its defaults and, for accuracy only, also with the extremes of activations.
Networks are pruned FOR int8 in OpenVINO, to shares of the original's latency there in float32, reconstructed and
fine-tuned; decisions are based on validation images. ``--weights`` is as for benchmarks.precision.int8.

All files of a case are timed interleaved in one process, on one thread. In each pass a file runs a few times, of which
the lower decile counts, since other programs share the processor; a ratio is the median over the passes, with their
10th and 90th percentile. Accuracy is that of each file in its runtime, on test images. Networks with random weights are
only timed.

Prints two tables; writes benchmarks/results/openvino_int8.json, by processor. Completed rows are not run again.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from benchmarks.common import environment, processor, read_result, write_result
from benchmarks.precision import nncf_peer
from benchmarks.precision.cases import CASES, WHOLE, Case, case_settings, make_networks, random_settings
from benchmarks.precision.openvino_int8_tables import BASES, machine_tables
from benchmarks.precision.race import Files, race, ratio
from catro_deploy import networks
from catro_deploy.calibration import load_int8_recipe
from catro_deploy.data.base import Split, Subset
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import MissedError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.precision.fused import fused
from catro_deploy.precision.timing import convert_
from catro_deploy.progress import Silent
from catro_deploy.records import Finetune, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import load
from catro_deploy.runtimes import open_runner
from catro_deploy.settings import Settings
from catro_deploy.stages.integers import calibration_samples
from catro_deploy.stages.logits import dataset_of
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import prune
from catro_deploy.statistics.agreement import accuracy_of

RESULT = "openvino_int8.json"
TARGET = "x86-cpu-openvino"
BUDGETS: Mapping[str, tuple[str, ...]] = {
    "gtsrb-resnet20": ("0.19x",),
    "cifar10-resnet56": ("0.24x", "0.21x"),
    "gtsrb-mobilenet_v2": ("0.24x",),
}
RANDOM: Mapping[str, tuple[str, int, tuple[str, ...]]] = {
    "mobilenet_v2-random": ("torchvision:mobilenet_v2", 96, ()),
    "resnet50-random": ("torchvision:resnet50", 224, ("0.13x",)),
}
CALIBRATION = 64
"""Number of random calibration images for networks with random weights."""
CHUNK = 256


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gtsrb", type=Path)
    parser.add_argument("--cifar10", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--nncf", type=Path, required=True, help="Python with nncf and openvino")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="cases whose names match this pattern")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--work", type=Path, default=Path("runs/openvino"), help="where the run folders go")
    return parser.parse_args()


def networks_of(case: Case, budget: str, run: RunFolder, args: argparse.Namespace) -> tuple[Settings, Plan]:
    """Write the networks of a row in float32 and int8 to ``run``; return their settings and the plan."""
    settings = case_settings(case, args, prune={"target": TARGET, "budget": budget}, finetune={})
    make_networks(settings, run, train=budget != WHOLE)
    return settings, load_plan(run)


def by_nncf(python: Path, source: Path, images: NDArray[np.float32], result: Path, *ranges: str) -> dict[str, str]:
    """Quantise the float32 network ``source`` to int8 in ``result``; return the versions of NNCF and OpenVINO."""
    with tempfile.TemporaryDirectory() as folder:
        calibration = Path(folder, "images.npy")
        np.save(calibration, images)
        # Isolated: this project is not importable there.
        command = [str(python), "-I", nncf_peer.__file__, str(source), str(calibration), str(result), *ranges]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    versions: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return versions


def accuracy(runtime: str, file: Path, split: Split, plan: Plan) -> float:
    """Accuracy of a file in its runtime, image by image."""
    logits = []
    with open_runner(runtime, file, 1) as runner:
        for start in range(0, len(split.labels), CHUNK):
            places = np.arange(start, min(start + CHUNK, len(split.labels)))
            images = normalise(split.images(places), plan.mean, plan.std).numpy()
            logits += [runner.infer(images[place : place + 1]).copy() for place in range(len(images))]
    return accuracy_of(np.concatenate(logits), split.labels)


def run_case(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """A trained network and its pruned versions, in float32 and in int8."""
    case = CASES[name]
    whole = RunFolder(args.work / f"{name}-whole")
    settings, plan = networks_of(case, WHOLE, whole, args)
    dataset = dataset_of(settings, plan)
    recipe = load_int8_recipe(settings.quantize.recipe)
    samples = calibration_samples(Subset(dataset.train, plan.class_indices), plan, recipe)
    images = normalise(samples.pixels, plan.mean, plan.std).numpy()
    nncf, extremes = whole.path / "nncf.xml", whole.path / "nncf.min-max.xml"
    versions = by_nncf(args.nncf, whole.pruned_onnx, images, nncf)
    by_nncf(args.nncf, whole.pruned_onnx, images, extremes, "min-max")
    files = unpruned(whole.pruned_onnx, whole.onnx("pruned", "int8"), nncf)
    macs, epochs = {}, {}
    for budget in BUDGETS.get(name, ()):
        run = RunFolder(args.work / f"{name}-{budget}")
        with suppress(MissedError):  # no network meets the budget
            _, pruned = networks_of(case, budget, run, args)
            macs[budget] = pruned.pruned_macs / pruned.original_macs
            epochs[budget] = len(load(Finetune, run).epochs)
            files[f"{budget} fp32"] = ("openvino", run.pruned_onnx)
            files[f"{budget} int8"] = ("openvino", run.onnx("pruned", "int8"))
    test = Subset(dataset.test, plan.class_indices)
    judged = {**files, "nncf int8, min-max": ("openvino", extremes)}
    accuracies = {key: accuracy(*one, test, plan) for key, one in judged.items()}
    found = {"accuracy": accuracies, "macs": macs, "peer": versions, "epochs": epochs}
    return measured(files, case.title) | found


def run_random(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Latency of a network with random weights and of its pruned versions."""
    model, size, budgets = RANDOM[name]
    whole, macs = RunFolder(args.work / name), {}
    original = open_original(random_settings(model, size, TARGET, WHOLE, whole))
    source, ours = _in_both(original.model, original.input_shape, whole.path / "whole")
    images = np.random.default_rng(0).standard_normal((CALIBRATION, *original.input_shape)).astype(np.float32)
    nncf = whole.path / "nncf.xml"
    versions = by_nncf(args.nncf, source, images, nncf)
    files = unpruned(source, ours, nncf)
    for budget in budgets:
        run = RunFolder(args.work / f"{name}-{budget}")
        with run.lock():
            settings = random_settings(model, size, TARGET, budget, run)
            if not run.plan.is_file():
                prune(settings, run, Silent())
        plan = load_plan(run)
        macs[budget] = plan.pruned_macs / plan.original_macs
        both = _in_both(networks.load(run, weights="pruned"), original.input_shape, run.path / "pruned")
        files[f"{budget} fp32"], files[f"{budget} int8"] = (("openvino", file) for file in both)
    title = f"{model.partition(':')[2]}, {size}x{size}, random weights"
    return measured(files, title) | {"accuracy": {}, "macs": macs, "peer": versions}


def _in_both(network: nn.Module, shape: tuple[int, int, int], stem: Path) -> tuple[Path, Path]:
    """Files of ``network`` in float32 and int8."""
    files = stem.with_suffix(".onnx"), stem.with_suffix(".int8.onnx")
    for file in files:
        export_onnx(network, shape, file, opset=18, metadata={})
    convert_(files[1], "int8", "fp32", "openvino")
    return files


def unpruned(source: Path, ours: Path, nncf: Path) -> dict[str, tuple[str, Path]]:
    """Runtime and file of the networks that are not pruned."""
    return {
        "onnxruntime fp32": ("onnxruntime", source),
        "openvino fp32": ("openvino", source),
        "ours int8": ("openvino", ours),
        "nncf int8": ("openvino", nncf),
    }


def measured(files: Files, title: str) -> dict[str, Any]:
    """Latencies, ratios to each of the unpruned files, and nodes that compute in integers."""
    times = race(files)
    return {
        "title": title,
        "us": {name: float(np.median(of)) for name, of in times.items()},
        "speedup": {base: {name: ratio(times[base], of) for name, of in times.items()} for base in BASES},
        "integer": {
            name: fused(file, "openvino").integer for name, (_, file) in files.items() if name.endswith("int8")
        },
    }


def main() -> None:
    """Run the rows that are missing, print the tables of this machine."""
    args = arguments()
    machines: dict[str, dict[str, Any]] = read_result(RESULT).get("machines", {})
    rows: dict[str, dict[str, Any]] = machines.get(processor(), {}).get("rows", {})
    for name in (*CASES, *RANDOM):
        if name not in rows and args.only.search(name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows[name] = run_case(name, args) if name in CASES else run_random(name, args)
            machines[processor()] = {"environment": environment(), "rows": dict(sorted(rows.items()))}
            write_result(RESULT, {"machines": machines})
    print("\n\n".join(machine_tables(rows)))


if __name__ == "__main__":
    main()
