"""How the time of a convolution grows with its output width: the staircase."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gpu_device import Timing
from gpu_layers import Bench, measure_layers
from gpu_network import Case
from gpu_resnet import ResNet, Step

from catro_deploy.latency.widths import period, useful_widths

__all__ = ["measure_staircases", "staircase_rows"]

# Coarse widths first: what is cut off when time is up are the finest.
STEPS = (32, 8, 4, 1)
MOST_USEFUL = 12
ALIGNED = 8


def swept(resnet: ResNet) -> list[Step]:
    """The 3x3 and the reducing 1x1 convolution of the second block of each stage that has one."""
    names = [f"layer{stage + 1}.1.{which}" for stage in range(len(resnet.blocks)) for which in ("conv2", "conv1")]
    return [resnet.by_name[name] for name in names if name in resnet.by_name]


def in_order(steps: Sequence[Step], bench: Bench) -> list[Case]:
    """All widths of all curves; those of one distance mixed."""
    narrow, wide = bench.scale.swept
    ordered: dict[Case, None] = {}
    for distance in STEPS:
        cases = [
            Case(step, step.in_channels, width, batch)
            for step in steps
            for batch in bench.scale.batches
            for width in range(narrow, wide + 1)
            if width % distance == 0
        ]
        ordered.update(dict.fromkeys(cases[place] for place in bench.generator.permutation(len(cases))))
    return list(ordered)


def measure_staircases(bench: Bench, until: float) -> dict[str, Any]:
    """Time over output width, with all inputs: by layer and batch."""
    steps = swept(bench.scale.resnet)
    cases = in_order(steps, bench)
    began = time.monotonic()
    timings = measure_layers(cases, bench, until)
    curves = [
        _curve(step, batch, {c.outputs: t for c, t in timings.items() if (c.step, c.batch) == (step, batch)}, bench)
        for step in steps
        for batch in bench.scale.batches
    ]
    return {
        "asked": len(cases),
        "measured": len(timings),
        "seconds": time.monotonic() - began,
        "repeats": bench.scale.repeats,
        "curves": [curve for curve in curves if curve],
        "failed": bench.failed,
    }


def _curve(step: Step, batch: int, timings: Mapping[int, Timing], bench: Bench) -> dict[str, Any] | None:
    if not timings:
        return None
    widths = sorted(timings)
    us = [timings[width].us for width in widths]
    useful = useful_widths(widths, us, MOST_USEFUL)
    at = dict(zip(widths, us, strict=True))
    next_stair = {width: -(-width // ALIGNED) * ALIGNED for width in widths}
    beside = [at[width] / at[stair] for width, stair in next_stair.items() if width != stair and stair in at]
    return {
        "layer": step.name,
        "kernel": step.side,
        "size": step.size,
        "inputs": step.in_channels,
        "batch": batch,
        "widths": widths,
        # 1 where bias and ReLU are in the convolution's kernel.
        "kernels": [bench.fusion.kernels(Case(step, step.in_channels, width, batch)) for width in widths],
        "us": [round(value, 4) for value in us],
        "spread": [round(timings[width].spread, 4) for width in widths],
        "useful": useful,
        "period": period(widths, useful),
        # Time at widths that are no multiple of 8, over that at the next multiple of 8 above.
        "unaligned": None if not beside else [float(value) for value in np.percentile(beside, [10, 50, 90])],
    }


def staircase_rows(content: Mapping[str, Any]) -> tuple[list[str], list[list[object]]]:
    """A table: heads, rows."""
    rows: list[list[object]] = []
    for curve in content["curves"]:
        widths = curve["widths"]
        quarters = [width for width in (widths[0], 64, 128, 256) if width in widths]
        times = ", ".join(f"{width}: {curve['us'][widths.index(width)]:.1f}" for width in dict.fromkeys(quarters))
        unaligned = curve["unaligned"]
        rows.append(
            [
                f"{curve['kernel']}x{curve['kernel']}, {curve['inputs']} in, {curve['size']}x{curve['size']}",
                curve["batch"],
                len(widths),
                times,
                curve["period"],
                "" if unaligned is None else f"{unaligned[1]:.2f}x ({unaligned[0]:.2f} to {unaligned[2]:.2f})",
            ]
        )
    return ["convolution", "batch", "widths", "us at width", "period", "not a multiple of 8"], rows
