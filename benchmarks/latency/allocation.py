"""Seconds, proven gap and value of the greedy and the exact allocation on ResNets for 32x32 images.

    python -m benchmarks.latency.allocation

Costs are made up: a staircase with jumps (widths that are not multiples of 4 cost a third more) and a few percent of
noise that depends on layer and widths, as in measured tables; so are scatters and the worth of each residual branch.
Each group has 12 candidate widths, and also 0 if its branch may be removed. Prints a table; writes
benchmarks/results/allocation.json. Targets: ResNet-56 greedy within 2 s, exact to a gap of 0.5% within 10 s;
ResNet-110 exact within 60 s.
"""

import argparse
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from benchmarks.common import environment, table, write_result
from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import Allocation, GroupChoice, GroupValue, group_value
from catro_deploy.catro.greedy import greedy
from catro_deploy.catro.scatter import Scatter
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.models import build_model
from catro_deploy.records import Branch, Group, Layer

RESULT = "allocation.json"
CANDIDATES = 12
LIMITS_S = {"cifar_resnet56": 10.0, "cifar_resnet110": 60.0}
GAP = 0.005
SEED = 0


@dataclass(frozen=True)
class Row:
    """One allocation: wall and processor seconds, and the result."""

    model: str
    depth: bool
    budget: float
    solver: str
    seconds: float
    processor_s: float
    gap: float | None
    value: float
    used: float
    branches_gone: int


def layer_cost(layer: Layer, in_width: float, out_width: float) -> float:
    """Made-up cost in microseconds."""
    rounded = np.ceil(in_width / 4) * np.ceil(out_width / 8) * 32
    slow = 1.0 if out_width % 4 == 0 else 4 / 3
    noise = np.random.default_rng([SEED, zlib.crc32(layer.name.encode()), int(in_width), int(out_width)])
    return (5 + 1e-5 * layer.positions * layer.kernel * rounded * slow) * noise.normal(1, 0.03)


def make_value(group: Group, branch: bool) -> GroupValue:
    """Equally spaced candidates, and their worth by random scatters."""
    generator = np.random.default_rng([SEED, zlib.crc32(group.name.encode())])
    widths = tuple(sorted({round(width) for width in np.linspace(3, group.width, CANDIDATES)}))
    scatter = Scatter(generator.gamma(1.0, 1.0, group.width), generator.gamma(3.0, 1.0, group.width))
    choice = GroupChoice(group.name, (0, *widths) if branch else widths, len(group.producers))
    value = group_value(choice, scatter, temperature=1.0, epsilon=1e-9)
    worth = generator.exponential(1.0) if branch else 0.0
    return replace(value, value=value.value + worth * (np.array(choice.widths) > 0))


def branches_of(network: Network) -> list[Branch]:
    """A branch for each block that adds to an identity: it is the only reader of its first layer's output."""
    names = {layer.name for layer in network.layers}
    inner = [group for group in network.groups if len(group.producers) == 1 and group.name.endswith(".conv1")]
    return [
        Branch(group.name.removesuffix(".conv1"), (group.name,))
        for group in inner
        if group.name.replace("conv1", "downsample.0") not in names
    ]


def timed(model: str, depth: bool, budget: float, solver: str, full: float, solve: Callable[[], Allocation]) -> Row:
    """Run ``solve`` once."""
    start, processor = time.perf_counter(), time.process_time()
    found = solve()
    seconds, processor_s = time.perf_counter() - start, time.process_time() - processor
    gone = sum(width == 0 for width in found.widths.values())
    return Row(
        model, depth, budget, solver, seconds, processor_s, found.gap, found.value, float(found.cost / full), gone
    )


def compare(model: str, network: Network, depth: bool, budgets: list[float]) -> list[Row]:
    """Run the greedy and the exact allocation on one network."""
    groups = [group for group in network.groups if not group.fixed]
    branches = branches_of(network) if depth else []
    removable = {name for branch in branches for name in branch.groups}
    values = [make_value(group, group.name in removable) for group in groups]
    rows = []
    for share in budgets:
        # A separate cost for each: none benefits from what another has evaluated.
        costs = [LayerCost(network.layers, groups, layer_cost) for _ in range(2)]
        full = LayerCost(network.layers, groups, layer_cost).predict({group.name: group.width for group in groups})
        solvers: Mapping[str, Callable[[], Allocation]] = {
            "greedy": partial(greedy, values, costs[0], share * full, branches),
            "exact": partial(exact, values, costs[1], share * full, branches, limit_s=LIMITS_S[model], gap=GAP),
        }
        rows += [timed(model, depth, share, name, full, solve) for name, solve in solvers.items()]
        print(f"{model}, {'width and depth' if depth else 'width'}, {share:g}x: done", file=sys.stderr)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=float, nargs="*", default=[0.75, 0.5, 0.35])
    parser.add_argument("--models", nargs="*", default=list(LIMITS_S))
    args = parser.parse_args()
    rows = []
    for model in args.models:
        network = trace(build_model(model, 10), (3, 32, 32))
        for depth in (False, True):
            rows += compare(model, network, depth, args.budgets)
    shown = [
        [
            row.model,
            "width and depth" if row.depth else "width",
            f"{row.budget:g}x",
            row.solver,
            f"{row.seconds:.2f}",
            f"{row.processor_s:.2f}",
            "" if row.gap is None else f"{row.gap:.2%}",
            f"{row.value:.2f}",
            f"{row.used:.3f}x",
            row.branches_gone,
        ]
        for row in rows
    ]
    heads = ["model", "chooses", "budget", "solver", "s", "CPU s", "gap", "value", "used", "branches removed"]
    print(table(heads, shown))
    write_result(RESULT, {"rows": [asdict(row) for row in rows], "environment": environment()})


if __name__ == "__main__":
    main()
