"""The product on a machine with an NVIDIA GPU: doctor, profile, prune, fine-tune, export, verify, bench, report.

    python -m benchmarks.product.on_gpu FOLDER [--wheels FOLDER] [--target x86-gpu] \\
        [--model torchvision:resnet50 --size 224]

With --wheels nothing is fetched: a virtual environment in FOLDER, which sees the machine's own packages (torch, CUDA),
gets catro-deploy and those of its requirements that lie there as wheels. The data are drawn traffic signs.
A target whose runtime is TensorRT runs in ONNX Runtime with CUDA where TensorRT is not installed. Every command has its
own time limit; one that fails does not keep the next from being tried. Writes FOLDER/on_gpu.json: commands, exit codes,
seconds, output, and the run's records. It has never run on a GPU.
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

REPOSITORY = Path(__file__).resolve().parents[2]
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
target = {target}
classes = ["speed_limits"]
budget = "0.6x"
[finetune]
epochs = 2
[profile]
protocol = "quick"
[bench]
protocol = "quick"
"""
CUDA_TARGET = """\
extends = "x86-gpu"
title = "CUDA by ONNX Runtime"
runtime = "onnxruntime-cuda"
"""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--target", default="x86-gpu")
    parser.add_argument("--model", default="torchvision:resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--limit-s", type=float, default=300, help="for each command")
    return parser.parse_args()


def installed(folder: Path, wheels: Path) -> Path:
    """The Python of a new environment in ``folder`` with catro-deploy and what lies in ``wheels``."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", folder / "venv"], check=True)
    offline = ("-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(wheels))
    subprocess.run([python, *offline, "--no-build-isolation", str(REPOSITORY)], check=True)
    return python


def run(python: Path, arguments: Sequence[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """How ``catro-deploy`` ends with these ``arguments`` in ``folder``."""
    print("catro-deploy", *arguments, flush=True)
    start = time.monotonic()
    try:
        command = [str(python), "-m", "catro_deploy", *arguments]
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s
        )
        code: int | None = done.returncode
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        code, output = None, (late.stdout or b"").decode(errors="replace")
    print(output, flush=True)
    return {"arguments": arguments, "exit": code, "seconds": time.monotonic() - start, "output": output}


def main() -> None:
    """Run every command and keep what it said."""
    args = arguments()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = installed(folder, args.wheels.resolve()) if args.wheels else Path(sys.executable)
    target = args.target
    if target.startswith(("x86-gpu", "jetson")) and importlib.util.find_spec("tensorrt") is None:
        (folder / "cuda.toml").write_text(CUDA_TARGET)
        target = "./cuda.toml"
    config = CONFIG.format(model=json.dumps(args.model), size=args.size, target=json.dumps(target))
    (folder / "catro.toml").write_text(config)
    commands = [["doctor"], ["train"], ["profile"], ["run", "--run", "run"], ["bench", "--run", "run", "--force"]]
    outcomes = []
    for command in commands:
        outcomes.append(run(python, command, folder, args.limit_s))
        records = {name: json.loads(file.read_text()) for name in RECORDS if (file := folder / "run" / name).is_file()}
        found = {"target": target, "model": args.model, "commands": outcomes, "records": records}
        (folder / "on_gpu.json").write_text(json.dumps(found, indent=1))
    if any(outcome["exit"] != 0 for outcome in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
