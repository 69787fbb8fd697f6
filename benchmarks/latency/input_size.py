"""How well the latency profile of a network predicts its prunings at smaller input sizes.

    python -m benchmarks.latency.input_size [--networks cifar_resnet20] [--protocol quick]

Each network has one latency profile, at its own input size. As in `prune`, predictions for smaller sizes use this
profile and two measurements at the smaller size, of the unpruned network and a narrow one. Random prunings (each group
at a random one of the efficient widths) are timed as a whole, as in benchmarks.latency.cost_model. Predicted and
measured latencies are compared as shares of the original's at its own size.

Weights are random: latency does not depend on them. Prints a table; writes benchmarks/results/input_size.json.
Completed networks are not measured again.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import nn

from benchmarks.common import environment, table
from benchmarks.latency.cost_model import latencies
from benchmarks.latency.networks import NETWORKS, measured_networks, untrained
from catro_deploy.calibration import load_latency_protocol, load_profile_protocol
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.resizing import resizing
from catro_deploy.latency.candidate import candidate_timer
from catro_deploy.latency.profile import find_profile, measure_profile
from catro_deploy.latency.scaling import correction_of, narrow_widths, scaled_profile
from catro_deploy.latency.table import TableCost, prediction_errors
from catro_deploy.progress import Silent
from catro_deploy.pruning.cutting import of_widths
from catro_deploy.transports.execution import Use

RESULT = "input_size.json"
SIZES = {"cifar_resnet20": (28, 24, 20), "torchvision:mobilenet_v2": (64,), "torchvision:resnet50": (192, 160, 128)}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--prunings", type=int, default=25)
    parser.add_argument("--protocol", default="standard")
    return parser.parse_args()


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Prediction errors at each size, and the share of the latency that remains by the smaller size alone."""
    model, own_size = untrained(name), NETWORKS[name]
    shape, use = (3, own_size, own_size), Use("x86-cpu", "onnxruntime", "fp32", threads=1, batch=1)
    protocol = load_profile_protocol(args.protocol)
    profile = find_profile(model, shape, use) or measure_profile(model, shape, use, protocol, Silent())
    own, sizes = trace(model, shape), {}
    for size in SIZES[name]:
        smaller = resizing(model, (size, size))
        network = trace(smaller, shape)
        groups = [group for group in network.groups if not group.fixed]
        generator = np.random.default_rng(size)
        prunings = [
            {group.name: int(generator.choice(profile.staircases[group.name].candidates)) for group in groups}
            for _ in range(args.prunings)
        ]
        full, narrow = {group.name: group.width for group in groups}, narrow_widths(groups, profile)
        unpruned, narrower = shares_of_original(model, [smaller, of_widths(smaller, network, (), narrow)], shape, use)
        shares, noise = latencies(smaller, network, prunings, shape, use, protocol)
        measured = [unpruned * share for share in shares]
        both = [(full, unpruned * profile.original_us), (narrow, narrower * profile.original_us)]
        correction = correction_of(profile, own.layers, network.layers, groups, both)
        scaled = scaled_profile(profile, own.layers, network.layers, correction)
        cost = TableCost(network.layers, groups, scaled.shapes, scaled.cells, scaled.fit, scaled.staircases)
        predicted = [cost.predict(widths) / profile.original_us for widths in prunings]
        sizes[str(size)] = {
            "errors": asdict(prediction_errors(predicted, measured)),
            "unpruned": unpruned,
            "points": list(map(list, zip(predicted, measured, strict=True))),
            "noise": noise,
        }
    return {"input": own_size, "sizes": sizes, "device": dict(profile.device), "environment": environment()}


def shares_of_original(
    model: nn.Module, others: Sequence[nn.Module], shape: tuple[int, int, int], use: Use
) -> list[float]:
    """The latency of each of ``others`` as a share of that of ``model``."""
    with candidate_timer(model, shape, use, load_latency_protocol("quick"), 18) as timer:
        return [timer.measure(other).speedup.ratio for other in others]


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """A line for each network and size."""
    lines = []
    for name, result in results.items():
        for size, found in result["sizes"].items():
            e = found["errors"]
            errors = [f"{e['within_5']:.0%}", f"{e['within_10']:.0%}", f"{e['rmspe']:.2%}", f"{e['spearman']:.3f}"]
            lines.append([name, f"{result['input']} -> {size}", f"{found['unpruned']:.3f}x", e["networks"], *errors])
    return table(
        ["network", "input size", "unpruned", "prunings", "within 5%", "within 10%", "RMSPE", "Spearman"], lines
    )


def main() -> None:
    """Measure the networks that are missing, print the table."""
    args = arguments()
    print(results_table(measured_networks(RESULT, args.networks, lambda name: measure(name, args))))


if __name__ == "__main__":
    main()
