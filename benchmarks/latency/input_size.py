"""How well the latency profile of a network predicts its prunings at smaller input sizes.

    python -m benchmarks.latency.input_size [--networks cifar_resnet20] [--protocol quick]

Each network has one latency profile, at its own input size. As in `prune`, predictions for smaller sizes use this
profile and two measurements at the smaller size, of the unpruned network and a narrow one. Random prunings (each group
at a random one of the efficient widths) are timed as a whole, as in benchmarks.latency.cost_model. Predicted and
measured latencies are compared as shares of the original's at its own size; in int8 likewise, with a profile in int8,
but the two measurements in float32.

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
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.resizing import resizing
from catro_deploy.latency.candidate import candidate_timer
from catro_deploy.latency.profile import LatencyProfile, find_profile, measure_profile
from catro_deploy.latency.scaling import Correction, correction_of, narrow_widths, scaled_profile
from catro_deploy.latency.table import TableCost, prediction_errors
from catro_deploy.progress import Silent
from catro_deploy.pruning.cutting import of_widths
from catro_deploy.records import Group
from catro_deploy.transports.execution import Use

RESULT = "input_size.json"
FLOAT32, INT8 = (Use("x86-cpu", "onnxruntime", precision, threads=1, batch=1) for precision in ("fp32", "int8"))
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
    shape, protocol = (3, own_size, own_size), load_profile_protocol(args.protocol)

    def profile_in(use: Use) -> LatencyProfile:
        return find_profile(model, shape, use) or measure_profile(model, shape, use, protocol, Silent())

    profile, in_int8 = profile_in(FLOAT32), profile_in(INT8)
    own, sizes = trace(model, shape), {}
    for size in SIZES[name]:
        smaller = resizing(model, (size, size))
        network = trace(smaller, shape)
        groups = [group for group in network.groups if not group.fixed]
        full, narrow = {group.name: group.width for group in groups}, narrow_widths(groups, profile)
        unpruned, narrower = shares_of_original(
            model, [smaller, of_widths(smaller, network, (), narrow)], shape, FLOAT32
        )
        both = [(full, unpruned * profile.original_us), (narrow, narrower * profile.original_us)]
        correction = correction_of(profile, own.layers, network.layers, groups, both)
        cost, prunings = corrected(profile, own, network, correction), random_prunings(profile, groups, args, size)
        shares, noise = latencies(smaller, network, prunings, shape, FLOAT32, protocol)
        sizes[str(size)] = {
            **compared(cost, profile.original_us, prunings, [unpruned * share for share in shares]),
            "unpruned": unpruned,
            "noise": noise,
        }
        cost, prunings = corrected(in_int8, own, network, correction), random_prunings(in_int8, groups, args, size)
        built = [of_widths(smaller, network, (), widths) for widths in prunings]
        of_model, *shares = shares_of_original(model, [model, *built], shape, INT8)
        sizes[str(size)]["int8"] = compared(cost, in_int8.original_us / of_model, prunings, shares)
    return {"input": own_size, "sizes": sizes, "device": dict(profile.device), "environment": environment()}


def corrected(profile: LatencyProfile, own: Network, network: Network, correction: Correction) -> TableCost:
    """Prices at the smaller size of ``network``."""
    groups = [group for group in network.groups if not group.fixed]
    scaled = scaled_profile(profile, own.layers, network.layers, correction)
    return TableCost(network.layers, groups, scaled.shapes, scaled.cells, scaled.fit, scaled.staircases)


def random_prunings(
    profile: LatencyProfile, groups: Sequence[Group], args: argparse.Namespace, seed: int
) -> list[dict[str, int]]:
    """Each group at a random one of its efficient widths."""
    generator = np.random.default_rng(seed)
    return [
        {group.name: int(generator.choice(profile.staircases[group.name].candidates)) for group in groups}
        for _ in range(args.prunings)
    ]


def compared(
    cost: TableCost, original_us: float, prunings: Sequence[dict[str, int]], measured: Sequence[float]
) -> dict[str, Any]:
    """Predicted and ``measured`` shares of the original's latency, and the errors."""
    predicted = [cost.predict(widths) / original_us for widths in prunings]
    points = list(map(list, zip(predicted, measured, strict=True)))
    return {"errors": asdict(prediction_errors(predicted, measured)), "points": points}


def shares_of_original(
    model: nn.Module, others: Sequence[nn.Module], shape: tuple[int, int, int], use: Use
) -> list[float]:
    """The latency of each of ``others`` as a share of that of ``model`` in float32."""
    with candidate_timer(model, shape, use, load_latency_protocol("quick"), 18) as timer:
        return [timer.measure(other).speedup.ratio for other in others]


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """A line for each network and size."""
    lines = []
    for name, result in results.items():
        for size, found in result["sizes"].items():
            for precision, of in (("fp32", found), ("int8", found["int8"])):
                e = of["errors"]
                errors = [f"{e['within_5']:.0%}", f"{e['within_10']:.0%}", f"{e['rmspe']:.2%}", f"{e['spearman']:.3f}"]
                unpruned = f"{found['unpruned']:.3f}x" if of is found else ""
                lines.append([name, f"{result['input']} -> {size}", precision, unpruned, e["networks"], *errors])
    heads = ["network", "input size", "precision", "unpruned", "prunings"]
    return table([*heads, "within 5%", "within 10%", "RMSPE", "Spearman"], lines)


def main() -> None:
    """Measure the networks that are missing, print the table."""
    args = arguments()
    print(results_table(measured_networks(RESULT, args.networks, lambda name: measure(name, args))))


if __name__ == "__main__":
    main()
