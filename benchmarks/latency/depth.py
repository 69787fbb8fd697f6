"""How far narrower layers, fewer blocks, and both reduce latency: ResNet-50 on a V100, ResNet-20 on x86-cpu.

    python -m benchmarks.latency.depth --data FOLDER
    python -m benchmarks.latency.depth --data FOLDER --checkpoint gtsrb_resnet20.pth --gtsrb GTSRB_FOLDER

FOLDER holds latency/v100_tensorrt_*.csv.gz. "Width": every residual block is kept, its layers become narrower. "Depth":
blocks are removed or kept whole. The exact allocation chooses. All latencies are predicted sums over layers; no network
is built, timed as a whole or fine-tuned here (benchmarks/accuracy/equal_latency.py does that).

V100: layers were measured one by one with TensorRT, one image at a time. tests/v100_resnet50.py describes what replaces
sizes and pairs of widths that were not measured; the result counts such pairs. The sums include each launch, which a
queue of kernels mostly hides, so all results are given twice: with latencies as measured, and with 5.8 us less per
layer (an estimate, see docs/roofline.md). No trained weights are available: the worth of widths and blocks is MADE UP.
The reachable latencies are therefore meaningful; the share of the worth that is kept ranks the three modes only as far
as the made-up worth is realistic.

x86-cpu: the latency profile of the trained ResNet-20 (measured if there is none yet), worths from GTSRB's speed limits.

The least latency, found to within 1%, is that of networks without practical use: 8 channels per layer, or no block at
all. It shows how far each mode can go. Prints tables; writes benchmarks/results/depth.json.
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment, read_result, table, write_result
from catro_deploy.calibration import load_profile_protocol
from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import GroupChoice, GroupValue
from catro_deploy.errors import BudgetError
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.graph.fx.worths import branch_worths
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.latency.pricing import measured_pricing, profile_of
from catro_deploy.latency.roofline import ALONE_EXTRA_US
from catro_deploy.progress import Silent
from catro_deploy.pruning.scoring import score_channels
from catro_deploy.pruning.selection import values_of
from catro_deploy.records import Branch
from catro_deploy.settings import DataSettings, ModelSettings, PruneSettings, Settings
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import pruning_batches
from catro_deploy.targets import load_target
from catro_deploy.transports.execution import use_of
from tests import v100_resnet50

RESULT = "depth.json"
MODES = ("width", "depth", "both")
PRECISIONS = ("fp16", "int8", "fp32")
# How the launch of a layer timed by itself is counted: the title, and how many microseconds a queue of kernels hides.
LAUNCHES = {"alone": ("as measured", 0.0), "queued": ("5.8 us less a layer (estimate)", ALONE_EXTRA_US)}
PARTS = (1, 2, 4, 8)
# Shares of the latency within this factor count as equal in the search for the smallest.
NEAR = 1.01
LEAST = 0.01
LIMIT_S, GAP = 60.0, 0.005


@dataclass(frozen=True)
class Case:
    """A network to allocate: ``values`` include width 0 for the groups of ``branches``; latency in microseconds."""

    network: Network
    values: Sequence[GroupValue]
    branches: Sequence[Branch]
    latency: LayerCost
    macs: FlopsCost

    @property
    def full(self) -> dict[str, int]:
        """The width of every group before pruning."""
        return {group.choice.name: group.choice.widths[-1] for group in self.values}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the V100's latencies")
    parser.add_argument("--gtsrb", type=Path, help="folder of GTSRB, for x86-cpu")
    parser.add_argument("--checkpoint", type=Path, help="ResNet-20 trained on it")
    parser.add_argument("--protocol", default="standard", help="protocol of the latency profile, if there is none yet")
    parser.add_argument("--budget", type=float, default=0.5)
    args = parser.parse_args()
    if (args.gtsrb is None) != (args.checkpoint is None):
        parser.error("--gtsrb and --checkpoint require each other")
    return args


def v100_case(folder: Path, precision: str, hidden_us: float) -> Case:
    """ResNet-50 at one precision."""
    traced = v100_resnet50.traced()
    values = v100_resnet50.made_up_values()
    cost = v100_resnet50.priced(folder, precision, hidden_us)
    return Case(traced.network, values, traced.branches, cost, FlopsCost(traced.network.layers, traced.groups))


def x86_case(args: argparse.Namespace) -> tuple[Case, dict[str, Any]]:
    """ResNet-20 on GTSRB's speed limits, and the facts about its latency profile and worths."""
    settings = Settings(
        model=ModelSettings(checkpoint=args.checkpoint, mean=(0.3403, 0.3121, 0.3214), std=(0.2724, 0.2608, 0.2669)),
        data=DataSettings(name="gtsrb", root=args.gtsrb),
        prune=PruneSettings(classes=["speed_limits"]),
    )
    original, prune = open_original(settings), settings.prune
    network = trace(original.model, original.input_shape)
    batches = pruning_batches(original, settings)
    scored = score_channels(original.model, network, batches, prune, Silent())
    branches = find_branches(original.model, network)
    worths = branch_worths(original.model, network, branches, batches)
    use, protocol = use_of(load_target(prune.target), settings), load_profile_protocol(args.protocol)
    profile = profile_of(original.model, network, use, protocol, Silent(), opset=settings.export.opset)
    pricing = measured_pricing(network, scored.prunable, profile)
    candidates = {
        group.name: tuple(width for width in pricing.staircases[group.name].candidates if width >= prune.d_min)
        for group in scored.prunable
    }
    values = values_of(scored, candidates, prune, {branch: worths[branch.name] for branch in branches})
    known = {
        "source": pricing.source,
        "disagreement": profile.disagreement,
        "held_out": asdict(profile.errors),
        "warnings": pricing.warnings,
        "worths_of_blocks": worths,
        "worth_of_all_widths": sum(float(group.value[-1]) for group in values) - sum(worths.values()),
    }
    return Case(network, values, branches, pricing.cost, FlopsCost(network.layers, scored.prunable)), known


def restricted(values: Sequence[GroupValue], mode: str) -> list[GroupValue]:
    """The same worths on the widths that ``mode`` chooses from."""
    chosen = []
    for group in values:
        widths = np.array(group.choice.widths)
        allowed = {"width": widths > 0, "depth": (widths == 0) | (widths == widths[-1]), "both": widths >= 0}[mode]
        choice = GroupChoice(group.choice.name, tuple(widths[allowed].tolist()), group.choice.members)
        chosen.append(GroupValue(choice, group.value[allowed]))
    return chosen


def judge(case: Case, mode: str, budget: float) -> dict[str, Any]:
    """The results of one of ``MODES``: least latency, and the allocation at ``budget``, a share of the original's."""
    values, branches = restricted(case.values, mode), case.branches if mode != "width" else ()
    full_us = case.latency.predict(case.full)

    def within(share: float) -> dict[str, Any] | None:
        try:
            found = exact(values, case.latency, share * full_us, branches, limit_s=LIMIT_S, gap=GAP)
        except BudgetError:
            return None
        gone = [branch.name for branch in branches if not any(found.widths[name] for name in branch.groups)]
        return {
            "latency": found.cost / full_us,
            "value": found.value / sum(float(group.value[-1]) for group in case.values),
            "macs": case.macs.predict(found.widths) / case.macs.predict(case.full),
            "blocks": len(case.branches) - len(gone),
            "gone": gone,
            "gap": found.gap,
            "widths": found.widths,
        }

    low, least = LEAST, within(1.0)
    while least and least["latency"] > NEAR * low:
        middle = math.sqrt(low * least["latency"])
        low, least = (low, nearer) if (nearer := within(middle)) else (middle, least)
    return {"least": least, "at_budget": within(budget)}


def narrowed(case: Case, part: int) -> dict[str, float]:
    """Latency and multiply-accumulates if every group keeps one ``part``-th of its channels."""
    widths = {name: width // part for name, width in case.full.items()}
    return {
        "macs": case.macs.predict(widths) / case.macs.predict(case.full),
        "latency": case.latency.predict(widths) / case.latency.predict(case.full),
    }


def v100_results(folder: Path, budget: float) -> dict[str, Any]:
    """Results by how launches are counted, and by precision."""
    results: dict[str, Any] = {}
    for launch, (_, hidden_us) in LAUNCHES.items():
        for precision in PRECISIONS:
            print(f"V100 {precision}, {launch} ...", file=sys.stderr, flush=True)
            case = v100_case(folder, precision, hidden_us)
            modes = {mode: judge(case, mode, budget) for mode in MODES}
            pairs = v100_resnet50.measured_pairs(folder, precision)
            for found in [one for mode in modes.values() for one in mode.values() if one]:
                layers = [pair for pair in case.latency.layer_widths(found["widths"]).values() if all(pair)]
                found |= {"layers": len(layers), "not_measured": sum(pair not in pairs for pair in layers)}
            results.setdefault(launch, {})[precision] = {
                "original_us": case.latency.predict(case.full),
                "narrowed": {f"1/{part}": narrowed(case, part) for part in PARTS},
                "modes": modes,
            }
    return results


def modes_table(judged: Mapping[str, Mapping[str, Any]], blocks: int, budget: float) -> str:
    """A line for each case and mode."""
    lines = []
    for title, modes in judged.items():
        for mode in MODES:
            least, found = modes[mode]["least"], modes[mode]["at_budget"]
            cells = ["not met", "", ""]
            if found:
                cells = [f"{found['value']:.1%}", f"{found['macs']:.1%}", f"{found['blocks']} of {blocks}"]
            lines.append([title, mode, f"{least['latency']:.3f}x", *cells])
    at = f"at {budget:g}x"
    return table(["", "chooses", "least latency", f"{at}: worth kept", f"{at}: MACs", f"{at}: blocks left"], lines)


def narrowed_table(by_precision: Mapping[str, Any]) -> str:
    """A line for each share of the channels."""
    lines = []
    for part in (f"1/{part}" for part in PARTS):
        cells = [results["narrowed"][part] for results in by_precision.values()]
        lines.append([part, f"{cells[0]['macs']:.1%}", *(f"{cell['latency']:.2f}x" for cell in cells)])
    return table(["every width", "MACs", *by_precision], lines)


def show(result: Mapping[str, Any]) -> None:
    """Print all tables."""
    for launch, by_precision in result.get("v100", {}).items():
        print(f"\nResNet-50, V100, TensorRT, batch 1: sums of layers timed alone, {LAUNCHES[launch][0]}. Predicted.\n")
        print(narrowed_table(by_precision))
        print("\nThe same; the worth of widths and blocks is made up.\n")
        judged = {f"{p}, {one['original_us'] / 1000:.2f} ms": one["modes"] for p, one in by_precision.items()}
        print(modes_table(judged, len(v100_resnet50.traced().branches), result["budget"]))
    if x86 := result.get("x86_cpu"):
        print(f"\nResNet-20, GTSRB speed limits, x86-cpu. Predicted; {x86['source']}.\n")
        title = f"fp32, {x86['original_us'] / 1000:.2f} ms"
        print(modes_table({title: x86["modes"]}, len(x86["worths_of_blocks"]), result["budget"]))


def main() -> None:
    """Allocate, print, write; parts that are not requested are kept as an earlier run wrote them."""
    args = arguments()
    result = {"budget": args.budget} | {
        name: part for name, part in read_result(RESULT).items() if name in ("v100", "x86_cpu")
    }
    if args.data:
        result["v100"] = v100_results(args.data, args.budget)
    if args.gtsrb:
        case, known = x86_case(args)
        modes = {mode: judge(case, mode, args.budget) for mode in MODES}
        original_us = case.latency.predict(case.full)
        result["x86_cpu"] = known | {"original_us": original_us, "modes": modes, "environment": environment()}
    write_result(RESULT, result | {"environment": environment()})
    show(result)


if __name__ == "__main__":
    main()
