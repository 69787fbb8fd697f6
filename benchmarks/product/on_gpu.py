"""The product on a machine with an NVIDIA GPU: doctor, train, prune, fine-tune, export, verify, bench, report.

    python -m benchmarks.product.on_gpu FOLDER [--target x86-gpu-h100] [--batch 32] [--model torchvision:resnet50 \\
        --size 96] [--config catro.toml]

Settings are CONFIG, for drawn traffic signs and a network that is trained first, or those of --config, whose checkpoint
must exist. A target whose runtime is TensorRT runs in ONNX Runtime with CUDA if TensorRT is not installed. Every
command has its own time limit; after a failed command, the next ones are still tried. Writes FOLDER/on_gpu.json: the
machine, commands, exit codes, seconds, output, and the run's records. Selected files of this kind are stored in
benchmarks/results/on_gpu.json. FOLDER/output.log has the output of the command that is running.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import environment
from catro_deploy.targets import load_target

RESULT = "on_gpu.json"
OUTPUT = "output.log"
# Records that are kept of a run folder.
RECORDS = ("plan.json", "recovery.json", "finetune.json", "verify.json", "bench.json")
CONFIG = """\
[model]
name = {model}
checkpoint = "baseline.safetensors"
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]
[data]
name = "signs"
root = "data"
size = {size}
[train]
epochs = 2
[prune]
classes = ["speed_limits"]
budget = "0.6x"
[finetune]
epochs = 2
[bench]
protocol = "quick"
"""
CUDA_TARGET = """\
extends = {target}
title = "CUDA by ONNX Runtime"
runtime = "onnxruntime-cuda"
batch = {batch}
[sources]
batch = "A choice: the batch size given on the command line."
"""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="x86-gpu")
    parser.add_argument("--batch", type=int, default=1, help="batch size in ONNX Runtime")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--model", default="torchvision:resnet50")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--limit-s", type=float, default=300, help="time limit of each command")
    return parser.parse_args()


def run(arguments: Sequence[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """Run ``catro-deploy`` with ``arguments`` in ``folder``; return its exit code, seconds and output."""
    print("catro-deploy", *arguments, flush=True)
    command = [sys.executable, "-m", "catro_deploy", *arguments]
    start = time.monotonic()
    with (folder / OUTPUT).open("w") as log:  # kept if this process is killed
        try:
            done = subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, timeout=limit_s)
            code: int | None = done.returncode
        except subprocess.TimeoutExpired:
            code = None
    output = (folder / OUTPUT).read_text(errors="replace")
    print(output, flush=True)
    return {"arguments": arguments, "exit": code, "seconds": time.monotonic() - start, "output": output}


def main() -> None:
    """Run every command and store its output."""
    args = arguments()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    target = args.target
    if load_target(target).runtime == "tensorrt" and importlib.util.find_spec("tensorrt") is None:
        cuda = CUDA_TARGET.format(target=json.dumps(target), batch=args.batch)
        (folder / "cuda.toml").write_text(cuda)
        target = "./cuda.toml"
    config = CONFIG.format(model=json.dumps(args.model), size=args.size)
    (folder / "catro.toml").write_text(args.config.read_text() if args.config else config)
    training = [] if args.config else [["train"]]
    commands = [
        ["doctor"],
        *training,
        ["run", "--run", "run", "--target", target],
        ["bench", "--run", "run", "--force"],
    ]
    found: dict[str, Any] = {"environment": environment(), "target": target, "commands": []}
    for command in commands:
        found["commands"].append(run(command, folder, args.limit_s))
        found["records"] = {
            name: json.loads(file.read_text()) for name in RECORDS if (file := folder / "run" / name).is_file()
        }
        (folder / RESULT).write_text(json.dumps(found, indent=1))
    if any(outcome["exit"] != 0 for outcome in found["commands"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
