"""How much the medians of OpenVINO's benchmark_app differ from those measured here, interleaved.

    python -m benchmarks.latency.second_opinion [--networks cifar_resnet20] [--repeats 3]

Each network and a pruning of it to half its channels, in float32 and in int8, are timed as in `bench`; benchmark_app
then times each alone, with the same settings. Weights are random: latency does not depend on them.

Prints a table; writes benchmarks/results/second_opinion.json. Completed networks are not measured again.
"""

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any

from torch import nn

from benchmarks.common import environment, table
from benchmarks.latency.networks import NETWORKS, halved, measured_networks, untrained
from catro_deploy.agent.jobs import ModelFile
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.latency.candidate import candidate_files
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use, bench_job

RESULT = "second_opinion.json"
PRECISIONS = ("fp32", "int8")
HEADS = ("network", "precision", "measured here", "benchmark_app", "difference in each repeat")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Medians by both, in microseconds, for each network and precision, for each repeat."""
    model, size = untrained(name), NETWORKS[name]
    shape = (3, size, size)
    pruned = halved(model, shape)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(repeats):
        for precision in PRECISIONS:
            for title, pair in opinions(model, pruned, shape, precision):
                found.setdefault(f"{title}, {precision}", []).append(pair)
    return {"input": size, "medians_us": found, "environment": environment()}


def opinions(
    original: nn.Module, pruned: nn.Module, shape: tuple[int, int, int], precision: str
) -> Iterator[tuple[str, tuple[float, float]]]:
    """For both networks, the median measured here and that of benchmark_app."""
    use = Use("x86-cpu-openvino", "openvino", precision, threads=1, batch=1, own_precision=precision)
    with candidate_files(use, 18, shape) as files:
        paths = {
            title: files.write(model, title, precision) for title, model in (("original", original), ("pruned", pruned))
        }
        models = {title: ModelFile(path.name, {}) for title, path in paths.items()}
        job = bench_job(use, load_latency_protocol("standard"), models, complete=True)
        result = run_job(use.device, job, files.folder, [path.name for path in paths.values()])
    app = result.benchmark_app
    assert app, result.warnings
    yield "original", (result.original.p50_us, app.original_us)
    yield "pruned", (result.pruned.p50_us, app.pruned_us)


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """A line for each network and precision."""
    lines = []
    for name, result in results.items():
        for title, pairs in result["medians_us"].items():
            kind, precision = title.split(", ")
            here, app = (median(times) for times in zip(*pairs, strict=True))
            apart = " ".join(f"{theirs / ours - 1:+.1%}" for ours, theirs in pairs)
            lines.append([f"{name}, {kind}", precision, f"{here:.0f} us", f"{app:.0f} us", apart])
    return table(HEADS, lines)


def main() -> None:
    """Measure the networks that are missing, print the table."""
    args = arguments()
    print(results_table(measured_networks(RESULT, args.networks, lambda name: measure(name, args.repeats))))


if __name__ == "__main__":
    main()
