"""Times of single layers: each a chain of repetitions, in turns with a reference network, until the time is up."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from gpu_device import Device, Run, Sample, Timing, interleaved, settled
from gpu_network import Case, Fusion, chain
from gpu_resnet import ResNet

__all__ = ["Bench", "Scale", "choose_kernels", "measure_layers"]

# Rounds that lie farther apart than this are measured again, at most so large a share of the layers.
DISAGREEMENT = 0.08
MOST_AGAIN = 0.25


@dataclass(frozen=True)
class Scale:
    """How much is measured.

    Layers: output widths from and to of the staircase (``swept``), repetitions in a chain, rounds, microseconds of one
    visit, layers loaded at a time. Networks: numbers of ``candidates`` of a group to choose from, which must be primes
    for Latin squares, the largest first; and how many networks are timed as a whole.
    """

    resnet: ResNet
    batches: tuple[int, ...]
    swept: tuple[int, int]
    repeats: int
    rounds: int
    block_us: float
    together: int
    candidates: tuple[int, ...]
    networks: int
    warmup_s: float


@dataclass
class Bench:
    """What all parts share.

    ``layer_s`` is what it took to prepare and time one new layer; ``failed`` says why layers have no time.
    """

    device: Device
    scale: Scale
    reference: Run
    fusion: Fusion = field(default_factory=Fusion)
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    layer_s: float = 0.0
    failed: list[str] = field(default_factory=list)


def measure_layers(cases: Sequence[Case], bench: Bench, until: float) -> dict[Case, Timing]:
    """Time one repetition of each of ``cases``, in this order, as many as there is time for (time.monotonic()).

    Those whose rounds disagree are measured again. A case that cannot run has no time.
    """
    samples = _measure(cases, bench, until)
    timings = _per_repetition(samples, bench)
    worst = sorted((case for case in timings if timings[case].spread > DISAGREEMENT), key=lambda c: -timings[c].spread)
    samples_again = _measure(worst[: int(MOST_AGAIN * len(timings))], bench, until)
    both = _per_repetition(samples | samples_again, bench)
    return {case: min(timings[case], both[case], key=lambda timing: timing.spread) for case in timings}


def _per_repetition(samples: dict[Case, Sample], bench: Bench) -> dict[Case, Timing]:
    times = settled(list(samples.values())) if samples else []
    return {case: Timing(time.us / bench.scale.repeats, time.spread) for case, time in zip(samples, times, strict=True)}


def _measure(cases: Sequence[Case], bench: Bench, until: float) -> dict[Case, Sample]:
    """Prepare some at a time and visit them in turns."""
    samples: dict[Case, Sample] = {}
    left = list(reversed(cases))
    while left and time.monotonic() < until:
        chains: dict[Case, Run] = {}
        while left and len(chains) < bench.scale.together and time.monotonic() < until:
            case = left.pop()
            try:
                chains[case] = chain(case, bench.scale.repeats, bench.device, bench.fusion)
            except RuntimeError as error:
                bench.failed.append(f"{case.step.name} {case.inputs}->{case.outputs} batch {case.batch}: {error}")
        found = interleaved(
            list(chains.values()),
            bench.reference,
            bench.device,
            bench.scale.rounds,
            bench.scale.block_us,
            bench.generator,
        )
        samples.update(zip(chains, found, strict=True))
    return samples


def choose_kernels(bench: Bench, seconds: float) -> dict[str, object]:
    """Find out for each kind of layer, at its full widths, whether it is faster as one kernel; and whether to tune.

    Where trying kernels takes too long cuDNN's heuristics choose.
    """
    steps = list(bench.scale.resnet.steps)
    steps += [step.rectified for step in steps if step.operators == ("Conv",)]
    kinds = {(*step.kind, batch): (step, batch) for batch in bench.scale.batches for step in reversed(steps)}
    cases = [
        Case(step, step.in_channels, step.out_channels, batch)
        for step, batch in kinds.values()
        if "Relu" in step.operators
    ]
    for tuned in (True, False):
        bench.device.tune(tuned)
        began = time.monotonic()
        bench.fusion.otherwise = True
        fused = measure_layers(cases, bench, began + seconds / 4)
        refused = {case for case in cases if case.key in bench.fusion.refused}
        bench.fusion.otherwise = False
        plain = measure_layers(cases, bench, began + seconds / 2)
        bench.layer_s = (time.monotonic() - began) / max(1, len(fused) + len(plain))
        both = [case for case in cases if case in fused and case in plain]
        if len(both) == len(cases):
            break
    for case in both:
        faster = case not in refused and fused[case].us < plain[case].us
        bench.fusion.by_kind[(*case.step.kind, case.batch)] = faster
    rows = [
        {"layer": case.step.name, "batch": case.batch, "fused_us": fused[case].us, "plain_us": plain[case].us,
         "refused": case in refused}
        for case in both
    ]  # fmt: skip
    return {"tuned": tuned, "layer_s": bench.layer_s, "layers": rows}
