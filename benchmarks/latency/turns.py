"""How much longer the first inferences of a turn take, when two networks are timed interleaved.

    python -m benchmarks.latency.turns [--networks torchvision:mobilenet_v2]

Each network and a pruning of it to half its channels take turns of ten inferences in one process, as in `bench`, but
all inferences count. Medians over all turns are relative to the second half of a turn; percentiles are given for all
inferences, and without the first two of each turn. Weights are random: latency does not depend on them.

Prints a table; writes benchmarks/results/turns.json. Completed networks are not measured again.
"""

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment, table
from benchmarks.latency.networks import NETWORKS, halved, measured_networks, untrained
from catro_deploy.agent.images import random_images
from catro_deploy.agent.jobs import BenchProtocol
from catro_deploy.agent.measure import clocked, measure
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.runtimes import open_runner

RESULT = "turns.json"
RUNTIMES = ("onnxruntime", "openvino")
PERCENTILES = (50, 90, 99)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    return parser.parse_args()


def time_turns(name: str) -> dict[str, Any]:
    """By runtime, for both networks: medians by position in a turn, and percentiles with and without the first ones."""
    model, size = untrained(name), NETWORKS[name]
    shape = (3, size, size)
    protocol = load_latency_protocol("standard")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {title: Path(folder, f"{title}.onnx") for title in ("original", "pruned")}
        for network, file in zip((model, halved(model, shape)), files.values(), strict=True):
            export_onnx(network, shape, file, opset=18, metadata={})
        for runtime in RUNTIMES:
            blocks = interleaved(runtime, files, replace(BenchProtocol(**protocol.model_dump()), settling=0))
            found[runtime] = {title: summary(np.array(turns), protocol.settling) for title, turns in blocks.items()}
    return {"input": size, "settling": protocol.settling, "runtimes": found, "environment": environment()}


def interleaved(runtime: str, files: dict[str, Path], protocol: BenchProtocol) -> dict[str, list[list[float]]]:
    """All latencies in microseconds, turn by turn, on one thread."""
    with ExitStack() as stack:
        runners = {title: stack.enter_context(open_runner(runtime, file, 1)) for title, file in files.items()}
        images = random_images(runners["original"], 1, np.random.default_rng(0))
        calls = {title: clocked(partial(runner.infer, images)) for title, runner in runners.items()}
        return measure(calls, protocol, lambda _: None)


def summary(turns_us: "np.ndarray[Any, np.dtype[np.float64]]", settling: int) -> dict[str, Any]:
    """Summary of latencies (turns, positions) in microseconds."""
    later = float(np.median(turns_us[:, turns_us.shape[1] // 2 :]))
    return {
        "by_place": (np.median(turns_us, axis=0) / later).tolist(),
        "all_us": np.percentile(turns_us, PERCENTILES).tolist(),
        "settled_us": np.percentile(turns_us[:, settling:], PERCENTILES).tolist(),
    }


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """A line for each network and runtime."""
    lines = []
    for name, result in results.items():
        for runtime, networks in result["runtimes"].items():
            for title, found in networks.items():
                places = [f"{share:.2f}x" for share in found["by_place"][:4]]
                both = zip(found["all_us"], found["settled_us"], strict=True)
                lines.append([f"{name}, {title}", runtime, *places, *(f"{a:.0f} / {s:.0f}" for a, s in both)])
    percentiles = [f"p{percent}, all / settled, us" for percent in PERCENTILES]
    return table(["network", "runtime", "first", "second", "third", "fourth", *percentiles], lines)


def main() -> None:
    """Measure the networks that are missing, print the table."""
    args = arguments()
    print(results_table(measured_networks(RESULT, args.networks, time_turns)))


if __name__ == "__main__":
    main()
