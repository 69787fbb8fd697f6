"""Integers in OpenVINO: ours beside NNCF's, and what pruning is worth beside the fastest without it.

    python -m benchmarks.precision.openvino --gtsrb FOLDER --cifar10 FOLDER --weights FOLDER --nncf PYTHON
        [--only resnet20] [--epochs 10]

PYTHON is that of an environment with nncf and openvino (pip install nncf openvino); NNCF is not needed otherwise. Both
calibrate on the same images. Networks are pruned by the times of layers in int8 in OpenVINO, to shares of the
original's latency there in float32, reconstructed and fine-tuned; what was decided was decided on validation images.

All files of a case are timed in turns in one process, on one thread. In each turn a file is run a few times, of which
the lower decile counts, since other programs share the processor; a ratio is the median over the turns, with their
10th and 90th percentile. Accuracy is that of each file in its runtime, on test images. ResNet-50 and the case
mobilenet_v2-random have random weights: their latency alone counts.

Prints two tables; writes benchmarks/results/openvino_int8.json, by processor. Rows that are done are not run again.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.common import environment, processor, read_result, table, write_result
from benchmarks.precision import nncf_peer
from benchmarks.precision.int8 import CASES, CIFAR10, GTSRB, WHOLE, Case
from catro_deploy.calibration import load_int8_recipe
from catro_deploy.data.base import Split, Subset
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import MissedError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.models import build_model
from catro_deploy.precision.fused import fused
from catro_deploy.precision.timing import convert_
from catro_deploy.progress import Silent
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runtimes import open_runner
from catro_deploy.settings import Settings, load_settings
from catro_deploy.stages.export import export
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.integers import calibration_samples
from catro_deploy.stages.logits import dataset_of
from catro_deploy.stages.prune import prune
from catro_deploy.stages.quantize import quantize
from catro_deploy.statistics.agreement import accuracy_of

RESULT = "openvino_int8.json"
TARGET = "x86-cpu-openvino"
RANDOM = {"mobilenet_v2": ("torchvision:mobilenet_v2", 96), "resnet50": ("torchvision:resnet50", 224)}
BUDGETS: Mapping[str, tuple[str, ...]] = {"gtsrb-resnet20": ("0.21x",), "cifar10-resnet56": ("0.27x",)}
CALIBRATION = 64
"""Random images for random weights."""
CHUNK = 256
TURNS, VISIT_S, LEAST = 40, 0.01, 5
"""A visit of a file in a turn takes so long, or so many inferences."""

Floats = NDArray[np.float32]
Files = Mapping[str, tuple[str, Path]]
"""By name: the runtime and the file."""

FORM_HEADS = (
    "network, unpruned", "float32, test", "ours, test", "NNCF, test", "ours over NNCF, speed (10% to 90%)",
    "integer nodes, ours", "integer nodes, NNCF",
)  # fmt: skip
WORTH_HEADS = (
    "network", "budget", "MACs", "original, test", "pruned int8, test", "against the original in ONNX Runtime, float32",
    "against the original in OpenVINO, float32", "against the original in int8 by NNCF",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gtsrb", type=Path)
    parser.add_argument("--cifar10", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--nncf", type=Path, required=True, help="Python with nncf and openvino")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="cases whose name this pattern finds")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--work", type=Path, default=Path("runs/openvino"), help="where the run folders go")
    return parser.parse_args()


def settings_of(case: Case, budget: str, args: argparse.Namespace) -> Settings:
    """What decides a row."""
    name, root, pixels = (
        ("gtsrb", args.gtsrb, GTSRB) if case.data == "gtsrb" else ("imagefolder", args.cifar10, CIFAR10)
    )
    return load_settings(
        None,
        {
            "model": {"name": case.model, "checkpoint": args.weights / case.checkpoint, **pixels},
            "data": {"name": name, "root": root, "size": case.size},
            "prune": {"target": TARGET, "classes": list(case.classes), "budget": budget},
            "finetune": {"epochs": args.epochs, "augment": "signs" if case.data == "gtsrb" else "objects"},
            "quantize": {"precision": "int8"},
        },
    )


def made(settings: Settings, run: RunFolder, *, train: bool) -> Plan:
    """The networks of ``run`` in float32 and int8; finished stages are not repeated."""
    with run.lock():
        if not run.plan.is_file():
            prune(settings, run, Silent())
        if not run.weights.is_file():
            if train:
                finetune(settings, run, Silent())
            else:
                shutil.copyfile(run.pruned_weights, run.weights)
        if not run.quantize.is_file():
            export(settings, run, Silent())
            with suppress(MissedError):  # the result says so
                quantize(settings, run, Silent())
    return load_plan(run)


def by_nncf(python: Path, source: Path, images: Floats, result: Path) -> dict[str, str]:
    """Write the network in float32 ``source`` to ``result`` in int8; the versions that did."""
    with tempfile.TemporaryDirectory() as folder:
        calibration = Path(folder, "images.npy")
        np.save(calibration, images)
        # Isolated: neither this folder, which has an openvino.py, nor PYTHONPATH is searched for modules.
        command = [str(python), "-I", nncf_peer.__file__, str(source), str(calibration), str(result)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    versions: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return versions


def raced(files: Files) -> dict[str, NDArray[np.float64]]:
    """Microseconds of each of ``files`` by turn."""
    with ExitStack() as stack:
        runners = {name: stack.enter_context(open_runner(runtime, file, 1)) for name, (runtime, file) in files.items()}
        first = next(iter(runners.values()))
        images = np.random.default_rng(0).standard_normal((first.batch or 1, *first.image_shape)).astype(np.float32)
        found: dict[str, list[float]] = {name: [] for name in files}
        for _ in range(TURNS):
            for name, runner in runners.items():
                found[name].append(_visit(lambda runner=runner: runner.infer(images)))
    return {name: np.array(times) for name, times in found.items()}


def _visit(infer: Any) -> float:  # noqa: ANN401 - a function whose result does not matter
    """The lower decile of some inferences, after one that fills the caches, in microseconds."""
    infer()
    times: list[float] = []
    while sum(times) < VISIT_S or len(times) < LEAST:
        began = time.perf_counter()
        infer()
        times.append(time.perf_counter() - began)
    return float(np.percentile(times, 10)) * 1e6


def ratio(slow: NDArray[np.float64], fast: NDArray[np.float64]) -> list[float]:
    """How many times as fast: median over the turns, 10th and 90th percentile."""
    return [float(np.percentile(slow / fast, share)) for share in (50, 10, 90)]


def accuracy(runtime: str, file: Path, split: Split, plan: Plan) -> float:
    """Of a file in its runtime, image by image."""
    logits = []
    with open_runner(runtime, file, 1) as runner:
        for start in range(0, len(split.labels), CHUNK):
            places = np.arange(start, min(start + CHUNK, len(split.labels)))
            images = normalise(split.images(places), plan.mean, plan.std).numpy()
            logits += [runner.infer(images[place : place + 1]).copy() for place in range(len(images))]
    return accuracy_of(np.concatenate(logits), split.labels)


def run_case(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The original, and what it was pruned to, in float32 and in int8 by both."""
    case = CASES[name]
    whole = RunFolder(args.work / f"{name}-whole")
    settings = settings_of(case, WHOLE, args)
    plan = made(settings, whole, train=False)
    dataset = dataset_of(settings, plan)
    recipe = load_int8_recipe(settings.quantize.recipe)
    samples = calibration_samples(Subset(dataset.train, plan.class_indices), plan, recipe)
    images = normalise(samples.pixels, plan.mean, plan.std).numpy()
    nncf = whole.path / "nncf.xml"
    versions = by_nncf(args.nncf, whole.pruned_onnx, images, nncf)
    files: dict[str, tuple[str, Path]] = {
        "onnxruntime fp32": ("onnxruntime", whole.pruned_onnx),
        "openvino fp32": ("openvino", whole.pruned_onnx),
        "ours int8": ("openvino", whole.onnx("pruned", "int8")),
        "nncf int8": ("openvino", nncf),
    }
    shares = {}
    for budget in BUDGETS.get(name, ()):
        run = RunFolder(args.work / f"{name}-{budget}")
        with suppress(MissedError):  # no network meets the budget
            pruned = made(settings_of(case, budget, args), run, train=True)
            shares[budget] = pruned.pruned_macs / pruned.original_macs
            files |= {
                f"{budget} fp32": ("openvino", run.pruned_onnx),
                f"{budget} int8": ("openvino", run.onnx("pruned", "int8")),
            }
    files = {key: one for key, one in files.items() if one[1].is_file()}
    test = Subset(dataset.test, plan.class_indices)
    accuracies = {key: accuracy(*one, test, plan) for key, one in files.items()}
    return measured(files, case.title) | {"accuracy": accuracies, "macs": shares, "peer": versions}


def run_random(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Latency of a network with random weights."""
    model, size = RANDOM[name]
    torch.manual_seed(0)
    network = build_model(model, 1000).eval()
    folder = args.work / f"{name}-random"
    folder.mkdir(parents=True, exist_ok=True)
    source, ours, nncf = (folder / file for file in ("fp32.onnx", "int8.onnx", "nncf.xml"))
    for file in (source, ours):
        export_onnx(network, (3, size, size), file, opset=18, metadata={})
    convert_(ours, "int8", "fp32", "openvino")
    images = np.random.default_rng(0).standard_normal((CALIBRATION, 3, size, size)).astype(np.float32)
    versions = by_nncf(args.nncf, source, images, nncf)
    files = {
        "onnxruntime fp32": ("onnxruntime", source),
        "openvino fp32": ("openvino", source),
        "ours int8": ("openvino", ours),
        "nncf int8": ("openvino", nncf),
    }
    title = f"{model.partition(':')[2]}, {size}x{size}, random weights"
    return measured(files, title) | {"accuracy": {}, "macs": {}, "peer": versions}


def measured(files: Files, title: str) -> dict[str, Any]:
    """Latencies, ratios to each of the files that are not pruned, and nodes that compute in integers."""
    times = raced(files)
    bases = [name for name in times if name in ("onnxruntime fp32", "openvino fp32", "nncf int8")]
    return {
        "title": title,
        "us": {name: float(np.median(of)) for name, of in times.items()},
        "speedup": {base: {name: ratio(times[base], of) for name, of in times.items()} for base in bases},
        "integer": {
            name: fused(file, "openvino").integer for name, (_, file) in files.items() if name.endswith("int8")
        },
    }


def form_cells(row: Mapping[str, Any]) -> list[str]:
    """One line of the first table."""
    tested = row["accuracy"]
    accuracies = [
        f"{tested[name]:.2%}" if name in tested else "" for name in ("openvino fp32", "ours int8", "nncf int8")
    ]
    integer = row["integer"]
    return [
        row["title"], *accuracies, spread(row["speedup"]["nncf int8"]["ours int8"]), str(integer["ours int8"]),
        str(integer["nncf int8"]),
    ]  # fmt: skip


def worth_cells(row: Mapping[str, Any]) -> list[list[str]]:
    """Lines of the second table: a network without pruning by NNCF, by us, and at each budget."""
    lines = []
    for name, budget in (("nncf int8", "as it is, NNCF"), ("ours int8", "as it is, ours"), *_pruned(row)):
        bases = ("onnxruntime fp32", "openvino fp32", "nncf int8")
        tested = row["accuracy"]
        accuracies = [f"{tested[one]:.2%}" if one in tested else "" for one in ("onnxruntime fp32", name)]
        share = row["macs"].get(budget, 1.0)
        lines.append(
            [row["title"], budget, f"{share:.0%}", *accuracies] + [spread(row["speedup"][base][name]) for base in bases]
        )
    return lines


def _pruned(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(f"{budget} int8", budget) for budget in row["macs"] if f"{budget} int8" in row["us"]]


def spread(found: list[float]) -> str:
    """A ratio with its spread."""
    median, low, high = found
    return f"{median:.2f}x ({low:.2f} to {high:.2f})"


def tables(rows: Mapping[str, Any]) -> list[str]:
    """Both tables of one machine."""
    worth = [line for row in rows.values() for line in worth_cells(row)]
    return [table(FORM_HEADS, [form_cells(row) for row in rows.values()]), table(WORTH_HEADS, worth)]


def main() -> None:
    """Run the rows that are missing, print the tables of this machine."""
    args = arguments()
    machines: dict[str, dict[str, Any]] = read_result(RESULT).get("machines", {})
    rows: dict[str, dict[str, Any]] = machines.get(processor(), {}).get("rows", {})
    for name in (*CASES, *(f"{one}-random" for one in RANDOM)):
        if name in rows or not args.only.search(name):
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        random = name.removesuffix("-random")
        rows[name] = run_case(name, args) if name in CASES else run_random(random, args)
        machines[processor()] = {"environment": environment(), "rows": dict(sorted(rows.items()))}
        write_result(RESULT, {"machines": machines})
    print("\n\n".join(tables(rows)))


if __name__ == "__main__":
    main()
