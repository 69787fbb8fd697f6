"""A cost model from the times of single layers, fitted on some whole networks and judged by others."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from gpu_device import Run, Sample, Timing, interleaved, settled
from gpu_layers import Bench, measure_layers
from gpu_network import Case, FoldedResNet
from gpu_resnet import ResNet

from catro_deploy.latency.table import Cell, Fit, LayerTable, TableCost, fit_whole, judge
from catro_deploy.latency.widths import latin_square
from catro_deploy.records import CostErrors

__all__ = ["Model", "cost_rows", "measure_cost"]

# Of a part's time, at most so much goes to single layers.
LAYERS_SHARE = 0.65
# Networks are timed longer than chains of one layer, and few at a time.
LONGER, NETWORKS_TOGETHER = 5, 12
# One in three networks is fitted on; of every two one lacks blocks.
FITTED_OF = 3
LEAST_FITTED = 6
ALIGNED, FINEST = 8, 32

Widths = Mapping[str, int]


@dataclass(frozen=True)
class Variant:
    """A network to be timed as a whole, and what for."""

    widths: Widths
    held_out: bool
    lacks_blocks: bool


@dataclass(frozen=True)
class Model:
    """What was learnt of the network at one batch."""

    batch: int
    cost: TableCost
    candidates: dict[str, tuple[int, ...]]
    original: Run


def candidates_of(width: int, count: int) -> tuple[int, ...]:
    """``count`` widths at equal distances up to ``width``: multiples of 8, of wide groups of a 32nd of the width."""
    multiple = max(min(ALIGNED, width), width // FINEST)
    steps = {max(1, round(width * place / count / multiple)) * multiple for place in range(1, count)}
    return tuple(sorted({*(step for step in steps if step < width), width}))


def cells_to_measure(resnet: ResNet, candidates: Mapping[str, tuple[int, ...]], batch: int) -> list[Case]:
    """Every shape of layer in every pair of candidate widths, the full widths of each first."""
    found: dict[Case, None] = {}
    shapes = {shape: resnet.by_name[name] for name, shape in reversed(resnet.shapes.items())}
    for step in shapes.values():
        inputs = candidates.get(step.inputs, (step.in_channels,))
        outputs = candidates.get(step.outputs, (step.out_channels,))
        found.update(dict.fromkeys(Case(step, *pair, batch) for pair in product(inputs, outputs)))
    full = [case for case in found if case == Case(case.step, case.step.in_channels, case.step.out_channels, batch)]
    return list(dict.fromkeys([*full, *found]))


def choose_candidates(bench: Bench, seconds: float) -> dict[str, tuple[int, ...]]:
    """As many for each group as can be measured in all pairs within ``seconds``."""
    resnet = bench.scale.resnet
    for count in bench.scale.candidates:
        found = {name: candidates_of(width, count) for name, width in resnet.widths.items()}
        if len(cells_to_measure(resnet, found, 1)) * bench.layer_s <= seconds:
            break
    return found


def variants(bench: Bench, candidates: Mapping[str, tuple[int, ...]]) -> list[Variant]:
    """Networks of random widths by Latin squares; of every other one some random blocks are gone."""
    resnet, generator = bench.scale.resnet, bench.generator
    networks: list[dict[str, int]] = []
    while len(networks) < bench.scale.networks:
        square = latin_square(candidates, resnet.neighbours, generator)
        networks += [square[place] for place in generator.permutation(len(square))]
    found = []
    for place, widths in enumerate(networks[: bench.scale.networks]):
        lacks = bool(place % 2)
        if lacks:
            share = generator.uniform(0.2, 0.9)
            gone = [name for branch in resnet.branches if generator.random() < share for name in branch.groups]
            widths = widths | dict.fromkeys(gone, 0)
        found.append(Variant(widths, place // 2 % FITTED_OF > 0, lacks))
    return found


def time_networks(networks: Sequence[Widths], batch: int, original: Run, bench: Bench, until: float) -> list[Timing]:
    """Times of whole networks, as many as there is time for; the original of the same batch runs between any two."""
    scale, samples = bench.scale, list[Sample]()
    while len(samples) < len(networks) and time.monotonic() < until:
        runs: list[Run] = []
        for widths in networks[len(samples) : len(samples) + NETWORKS_TOGETHER]:
            if time.monotonic() < until:
                network = FoldedResNet(scale.resnet, widths, batch, bench.device, bench.fusion)
                runs.append(bench.device.prepare(network))
        samples += interleaved(runs, original, bench.device, scale.rounds + 1, LONGER * scale.block_us, bench.generator)
    return settled(samples) if samples else []


def measure_cost(batch: int, bench: Bench, until: float) -> tuple[Model, dict[str, Any]]:
    """Measure layers and networks, fit, and judge.

    Raises:
        RuntimeError: there was too little time for a model.
    """
    resnet, began = bench.scale.resnet, time.monotonic()
    layers_s = (until - began) * LAYERS_SHARE
    candidates = choose_candidates(bench, layers_s)
    original = bench.device.prepare(FoldedResNet(resnet, resnet.widths, batch, bench.device, bench.fusion))
    asked = cells_to_measure(resnet, candidates, batch)
    shapes_full = len(set(resnet.shapes.values()))
    order = [*range(shapes_full), *(shapes_full + bench.generator.permutation(len(asked) - shapes_full))]
    timings = measure_layers([asked[place] for place in order], bench, began + layers_s)
    cells = _cells(timings, bench)
    tried = variants(bench, candidates)
    whole = time_networks([variant.widths for variant in tried], batch, original, bench, until)
    tried = tried[: len(whole)]
    cost, judged = _fit_and_judge(resnet, cells, tried, [timing.us for timing in whole])
    content = {
        "batch": batch,
        "seconds": time.monotonic() - began,
        "candidates": candidates,
        "cells_asked": len(asked),
        "cells_measured": len(timings),
        "failed": bench.failed,
        "original_us": float(np.median(bench.device.times_us(original, 20))),
        "original_predicted_us": cost.predict(resnet.widths),
        **judged,
        "networks": [_described(variant, timing, cost) for variant, timing in zip(tried, whole, strict=True)],
        "cells": {
            shape: [[*pair, round(cell.us, 4), cell.nodes, round(cell.spread, 4)] for pair, cell in of.items()]
            for shape, of in cells.items()
        },
    }
    return Model(batch, cost, candidates, original), content


def _described(variant: Variant, timing: Timing, cost: TableCost) -> dict[str, Any]:
    return {
        "widths": list(variant.widths.values()),
        "held_out": variant.held_out,
        "lacks_blocks": variant.lacks_blocks,
        "measured_us": round(timing.us, 3),
        "spread": round(timing.spread, 4),
        "predicted_us": round(cost.predict(variant.widths), 3),
        "estimated_layers": len(cost.estimated(variant.widths)),
    }


def _cells(timings: Mapping[Case, Timing], bench: Bench) -> dict[str, dict[tuple[int, int], Cell]]:
    cells: dict[str, dict[tuple[int, int], Cell]] = {}
    for case, timing in timings.items():
        of = cells.setdefault(bench.scale.resnet.shapes[case.step.name], {})
        of[case.inputs, case.outputs] = Cell(timing.us, bench.fusion.kernels(case), timing.spread, bench.scale.rounds)
    return cells


def _fit_and_judge(
    resnet: ResNet, cells: LayerTable, tried: Sequence[Variant], whole_us: Sequence[float]
) -> tuple[TableCost, dict[str, Any]]:
    """The model, and how it does on held-out networks beside two simpler ones."""

    def model(fit: Fit) -> TableCost:
        return TableCost(resnet.layers, resnet.groups, resnet.shapes, cells, fit)

    alone = model(Fit(1.0, 0.0, 0.0))
    counted = model(Fit(0.0, 1.0, 0.0))
    fitted = [i for i, v in enumerate(tried) if not v.held_out and not alone.estimated(v.widths)]
    if len(fitted) < LEAST_FITTED:
        raise RuntimeError(f"Only {len(fitted)} networks could be measured to fit on: too little time.")
    fit = fit_whole(
        [alone.predict(tried[i].widths) for i in fitted],
        [counted.predict(tried[i].widths) for i in fitted],
        [whole_us[i] for i in fitted],
    )
    macs = [resnet.macs(variant.widths) / 1e6 for variant in tried]
    line = np.polyfit([macs[i] for i in fitted], [whole_us[i] for i in fitted], 1, w=[1 / whole_us[i] for i in fitted])
    predictions = {
        "table": [model(fit).predict(variant.widths) for variant in tried],
        "sum_of_layers_alone": [alone.predict(variant.widths) for variant in tried],
        "macs": [float(np.polyval(line, count)) for count in macs],
    }
    errors = {
        name: {
            kind: asdict(found)
            for kind, lacks in (("width", {False}), ("width_and_depth", {True}), ("all", {False, True}))
            if (found := _errors(predicted, whole_us, tried, lacks)) is not None
        }
        for name, predicted in predictions.items()
    }
    return model(fit), {"fit": asdict(fit), "fitted_on": len(fitted), "errors": errors}


def _errors(
    predicted_us: Sequence[float], measured_us: Sequence[float], tried: Sequence[Variant], lacks: set[bool]
) -> CostErrors | None:
    chosen = [i for i, variant in enumerate(tried) if variant.held_out and variant.lacks_blocks in lacks]
    return judge([predicted_us[i] for i in chosen], [measured_us[i] for i in chosen]) if chosen else None


def cost_rows(contents: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """A table: heads, rows."""
    rows: list[list[object]] = [
        [
            content["batch"],
            model.replace("_", " "),
            kind.replace("_", " "),
            errors["networks"],
            f"{errors['within_5']:.0%}",
            f"{errors['within_10']:.0%}",
            f"{errors['rmspe']:.1%}",
            f"{errors['spearman']:.3f}",
        ]
        for content in contents
        for model, of in content["errors"].items()
        for kind, errors in of.items()
    ]
    return ["batch", "model", "networks differ in", "held out", "within 5%", "within 10%", "RMSPE", "Spearman"], rows
