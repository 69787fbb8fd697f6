"""A small network that exists only as a description, with hand-made prices: the input of allocation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from catro_deploy.catro.scatter import Scatter
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.latency.candidate import CandidateLatency, Measured
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.latency.pricing import Pricing
from catro_deploy.progress import Silent
from catro_deploy.pruning.allocation import Decision, by_latency
from catro_deploy.pruning.budgets import Priced
from catro_deploy.pruning.scoring import Scored
from catro_deploy.pruning.solvers import Problem
from catro_deploy.pruning.values import full_widths
from catro_deploy.records import Branch, Group, LatencyPlan, Layer, Slot, Speedup, Staircase
from catro_deploy.settings import PruneSettings

Widths = Mapping[str, int]
Price = Callable[[Layer, float, float], float]

BRANCH = Branch("outer", ("inner",), ("inner", "outer"))


def slot(module: str, axis: str, width: int) -> Slot:
    return Slot(module, axis, tuple(range(width)), tuple(range(width)))


def block(stream: int = 16, inner: int = 32) -> Network:
    """A stem, one residual branch of two convolutions around ``inner`` channels, and a head of four classes."""
    layers = (
        Layer("stem", 64, 9, 3, stream),
        Layer("inner", 64, 9, stream, inner),
        Layer("outer", 64, 9, inner, stream),
        Layer("fc", 1, 1, stream, 4),
    )
    ends = [slot("stem", "out", stream), slot("outer", "out", stream)]
    reads = [slot("inner", "in", stream), slot("fc", "in", stream)]
    groups = (
        Group("stem", stream, (*ends, *reads), ("stem", "outer")),
        Group("inner", inner, (slot("inner", "out", inner), slot("outer", "in", inner)), ("inner",)),
        Group("fc", 4, (slot("fc", "out", 4),), ("fc",), "the logits"),
    )
    sizes = {layer.name: (layer.out_channels, layer.in_channels) for layer in layers}
    return Network(layers, groups, "fc", sizes, (3, 8, 8))


def concatenation() -> Network:
    """A layer that reads two groups and produces a third."""
    layers = (
        Layer("one", 64, 9, 3, 8),
        Layer("two", 64, 9, 3, 8),
        Layer("join", 64, 9, 16, 8),
        Layer("fc", 1, 1, 8, 4),
    )
    second = Slot("join", "in", tuple(range(8, 16)), tuple(range(8)))
    groups = (
        Group("one", 8, (slot("one", "out", 8), slot("join", "in", 8)), ("one",)),
        Group("two", 8, (slot("two", "out", 8), second), ("two",)),
        Group("join", 8, (slot("join", "out", 8), slot("fc", "in", 8)), ("join",)),
    )
    return Network(layers, groups, "fc", {}, (3, 8, 8))


def scored(network: Network, fixed: Mapping[str, str] | None = None, seed: int = 0) -> Scored:
    """Random scatters for all groups of ``network`` except those fixed by the network or by ``fixed``."""
    generator = np.random.default_rng(seed)
    reasons = {group.name: group.fixed or (fixed or {}).get(group.name, "") for group in network.groups}
    prunable = tuple(group for group in network.groups if not reasons[group.name])
    scatters = {
        group.name: Scatter(generator.exponential(1, group.width), generator.exponential(1, group.width))
        for group in prunable
    }
    return Scored(prunable, scatters, reasons, {})


def smooth(layer: Layer, in_width: float, out_width: float) -> float:
    """Microseconds proportional to the multiply-accumulates."""
    return layer.positions * layer.kernel * in_width * out_width / 1000


def stairs(layer: Layer, in_width: float, out_width: float) -> float:
    """Steps of eight output channels; a width that is not a multiple of 8 costs 1.7 times as much, except in ``fc``."""
    odd = 1.7 if out_width % 8 and layer.name != "fc" else 1.0
    return 5 + layer.positions * layer.kernel * in_width * -(-out_width // 8) * 8 / 1000 * odd


def pricing(
    network: Network,
    on: Scored,
    price: Price,
    candidates: Mapping[str, Sequence[int]] | None = None,
    **fields: object,
) -> Pricing:
    """``price`` for each layer; without ``candidates``, all widths from 3 on. It is marked as measured."""
    cost = LayerCost(network.layers, on.prunable, price)
    found = {
        group.name: Staircase((), tuple((candidates or {}).get(group.name, range(3, group.width + 1))), 1)
        for group in on.prunable
    }
    original_us = cost.predict({group.name: group.width for group in on.prunable})
    return Pricing(cost, original_us, found, "measured", "by hand", **fields)


@dataclass
class Device:
    """A target: ``candidate_us(widths)`` for candidates, ``original_us(round)`` for the interleaved original.

    In a round that is ``disturbed`` it takes 1.4 times as long for candidates.
    """

    candidate_us: Callable[[Widths], float]
    original_us: Callable[[int], float]
    warnings: tuple[str, ...] = ()
    disturbed: Callable[[int], bool] = lambda number: False
    asked: list[dict[str, int]] = field(default_factory=list)

    def __call__(self, widths: Widths) -> CandidateLatency:
        self.asked.append(dict(widths))
        disturbed = self.disturbed(len(self.asked))
        us, original = self.candidate_us(widths) * (1.4 if disturbed else 1.0), self.original_us(len(self.asked))
        speedup = Speedup(original / us, (0.99 * original / us, 1.01 * original / us))
        return CandidateLatency(us, original, speedup, self.warnings, disturbed=disturbed)


class Wide:
    """A block with enough widths to use any budget to within one percent."""

    def __init__(self, price=smooth, candidates=None, worths=None, **fields):
        self.network = block(64, 128)
        self.on = scored(self.network)
        self.pricing = pricing(self.network, self.on, price, candidates, **fields)
        self.worths = worths or {}
        self.full_us = self.pricing.cost.predict(full_widths(self.on))

    def predict(self, widths: Widths) -> float:
        return self.pricing.cost.predict(widths)

    def device(self, factor: float = 1.0, **fields) -> Device:
        """A device on which pruned networks take ``factor`` times the predicted latency; the original takes its own."""
        return Device(lambda widths: factor * self.predict(widths), lambda _: self.full_us, **fields)

    def decide(self, budget: str, device: Device | None, **settings) -> Decision:
        chosen = PruneSettings(**{"allocation": "greedy", **settings}, budget=budget)
        return decided(Problem(self.network, self.on, chosen, self.worths), self.pricing, device)


def decided(problem: Problem, prices: Pricing, device: Device | None) -> Decision:
    """``by_latency`` measured on one device, or by estimate without one."""
    if device is None:
        return by_latency(problem, [Priced(prices, is_measured=False)], None, None, Silent())
    return by_latency(problem, [Priced(prices)], None, lambda widths: Measured((device(widths),)), Silent())


def plan_of(decision: Decision) -> LatencyPlan:
    assert decision.latency is not None
    return decision.latency
