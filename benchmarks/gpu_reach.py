"""What width alone, depth alone and both reach at half of the original's latency.

No images and no classes here, so every channel counts for the same: a group of d channels is worth 1 + 1/2 + ... + 1/d
for each of its layers, which is the paper's gain where all scores are equal, and a block that vanishes loses what its
groups are worth. What is shown is what the device allows, not which accuracy is kept.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from gpu_cost import Model
from gpu_device import interleaved, settled
from gpu_layers import Bench
from gpu_network import FoldedResNet
from gpu_resnet import ResNet

from catro_deploy.catro.exact import exact
from catro_deploy.catro.gains import Allocation, Branch, GroupChoice, GroupValue
from catro_deploy.catro.greedy import greedy
from catro_deploy.errors import BudgetError

__all__ = ["MODES", "measure_reach", "reach_rows", "values_for"]

MODES = ("width", "depth", "both")
SHARE = 0.5
# Close enough below the budget.
ENOUGH = 0.97
ROUNDS = 3
SOLVER_S = 4.0
# Turns of the pruned and the original network, and how much longer than a chain of one layer each takes.
TURNS, LONGER = 7, 5


def harmonic(channels: int) -> float:
    """1 + 1/2 + ... + 1/``channels``."""
    return float((1 / np.arange(1, channels + 1)).sum())


def values_for(
    mode: str, resnet: ResNet, candidates: Mapping[str, tuple[int, ...]]
) -> tuple[list[GroupValue], list[Branch]]:
    """What each group may be and is worth, and the blocks that may vanish."""
    branches = [] if mode == "width" else resnet.branches
    vanishing = {name for branch in branches for name in branch.groups}
    values = []
    for group in resnet.groups:
        widths = (group.width,) if mode == "depth" else candidates[group.name]
        choice = GroupChoice(
            group.name, (0, *widths) if group.name in vanishing else widths, members=len(group.producers)
        )
        worth = np.array([harmonic(width) for width in choice.widths])
        values.append(GroupValue(choice, choice.members * worth))
    return values, branches


def has_scipy() -> bool:
    """Whether the exact allocation can run here."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        return False
    return True


def measure_reach(model: Model, bench: Bench, until: float) -> dict[str, Any]:
    """Allocate to half of the latency and measure, in turns with the original; and the smallest there is."""
    solver = "exact" if has_scipy() else "greedy"
    found: dict[str, Any] = {}
    for mode in MODES:
        if time.monotonic() > until:
            break
        found[mode] = _reach(mode, solver, model, bench, until)
    return {"batch": model.batch, "share": SHARE, "solver": solver, "modes": found}


def _reach(mode: str, solver: str, model: Model, bench: Bench, until: float) -> dict[str, Any]:
    resnet, cost = bench.scale.resnet, model.cost
    values, branches = values_for(mode, resnet, model.candidates)
    original_us = cost.predict(resnet.widths)
    least = {value.choice.name: value.choice.widths[0] for value in values}
    rounds: list[dict[str, Any]] = []
    budget_us, problem = SHARE * original_us, None
    while len(rounds) < ROUNDS and time.monotonic() < until:
        try:
            allocation = _allocate(solver, values, model, budget_us, branches)
        except BudgetError as error:
            problem = error.problem
            break
        if rounds and allocation.widths == rounds[-1]["widths"]:
            break
        worth = allocation.value / sum(value.value[-1] for value in values)
        rounds.append({"value": worth, **_described(allocation.widths, model, bench)})
        if ENOUGH * SHARE <= rounds[-1]["measured"] <= SHARE:
            break
        # The model is off by so much around here.
        budget_us = SHARE * original_us * rounds[-1]["predicted"] / rounds[-1]["measured"]
    fitting = [turn for turn in rounds if turn["measured"] <= SHARE]
    return {
        "smallest": _described(least, model, bench),
        "rounds": rounds,
        "reached": max(fitting, key=lambda turn: turn["value"]) if fitting else None,
        "problem": problem,
    }


def _allocate(
    solver: str, values: list[GroupValue], model: Model, budget_us: float, branches: list[Branch]
) -> Allocation:
    if solver == "exact":
        return exact(values, model.cost, budget_us, branches, limit_s=SOLVER_S)
    return greedy(values, model.cost, budget_us, branches)


def _described(widths: Mapping[str, int], model: Model, bench: Bench) -> dict[str, Any]:
    """A network's share of the original's latency, predicted and measured, and what it has left."""
    resnet = bench.scale.resnet
    network = FoldedResNet(resnet, widths, model.batch, bench.device, bench.fusion)
    run = bench.device.prepare(network)
    samples = interleaved(
        [model.original, run], model.original, bench.device, TURNS, LONGER * bench.scale.block_us, bench.generator
    )
    original, pruned = settled(samples)
    return {
        "predicted": model.cost.predict(widths) / model.cost.predict(resnet.widths),
        "measured": pruned.us / original.us,
        "measured_us": pruned.us,
        "original_us": original.us,
        "spread": max(pruned.spread, original.spread),
        "macs": resnet.macs(widths) / resnet.macs(resnet.widths),
        "parameters": sum(weight.numel() + bias.numel() for weight, bias in network.parameters.values()),
        "blocks_gone": sum(not widths[branch.groups[0]] for branch in resnet.branches),
        "widths": dict(widths),
    }


def reach_rows(contents: list[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """A table: heads, rows."""
    rows: list[list[object]] = []
    for content in contents:
        for mode, of in content["modes"].items():
            smallest, reached = of["smallest"], of["reached"]
            row = [content["batch"], mode, f"{smallest['measured']:.3f}x ({smallest['predicted']:.3f}x)"]
            if reached is None:
                tried = ", ".join(f"{turn['measured']:.3f}x" for turn in of["rounds"])
                row += [f"not met{', tried: ' + tried if tried else ''}", "", "", ""]
            else:
                row += [f"{reached['measured']:.3f}x", f"{reached['value']:.1%}", f"{reached['macs']:.1%}"]
                row.append(reached["blocks_gone"])
            rows.append(row)
    at = f"at {SHARE:g}x"
    heads = ["batch", "chooses", "smallest network (predicted)", f"{at}: measured", f"{at}: worth kept", f"{at}: MACs"]
    return [*heads, f"{at}: blocks gone"], rows
