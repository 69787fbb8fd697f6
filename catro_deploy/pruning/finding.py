"""Find widths that meet the budgets for a network in memory, with prices and candidates on the target."""

import copy
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from torch import nn

from catro_deploy.calibration import load_latency_protocol, load_profile_protocol
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.onnx.export import plan_metadata
from catro_deploy.graph.onnx.footprint import Footprint, footprint_of
from catro_deploy.latency.candidate import (
    CandidateLatency,
    CandidateTimer,
    Measured,
    candidate_files,
    candidate_timer,
    new_repetition,
)
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.memory import peak_memory
from catro_deploy.latency.pricing import Pricing, estimated_pricing, measured_pricing, profile_of
from catro_deploy.latency.profile import LatencyProfile, find_profile
from catro_deploy.latency.scaling import Correction, correction_of, narrow_widths, scaled_profile
from catro_deploy.latency.size import WEIGHT, SizeCost
from catro_deploy.progress import Progress
from catro_deploy.pruning.allocation import Decision, by_flops, by_latency
from catro_deploy.pruning.budgets import Counted, Priced
from catro_deploy.pruning.cutting import Classifier, of_widths
from catro_deploy.pruning.shared import Shared, once
from catro_deploy.pruning.solvers import Problem
from catro_deploy.pruning.values import full_widths
from catro_deploy.settings import Settings
from catro_deploy.settings.sides import size_text
from catro_deploy.transports.execution import Use, use_of
from catro_deploy.transports.reach import profilable, reachable
from catro_deploy.transports.sides import Side, sides_of

__all__ = ["Finding"]

# Candidates of the closed loop are timed with this protocol; the report's figures come from the bench.
CANDIDATES = "quick"
SHA256_DIGITS = 64


@dataclass(frozen=True)
class Finding:
    """Finds the widths of ``original``, traced as ``whole``, that solve ``problem``.

    If candidates are not ``measured``, latency is only predicted. To adjust predictions, unpruned and narrow networks
    are still timed, unless that is known; such measurements are not repeated, even if they were disturbed.
    """

    original: Classifier
    whole: Network
    problem: Problem
    settings: Settings
    progress: Progress
    shared: Shared = field(default_factory=Shared)
    measured: bool = True

    def decision(self) -> Decision:
        """Find widths by latency if a budget is timed, otherwise by multiply-accumulates.

        Raises:
            As ``by_latency`` and ``by_flops``.
        """
        return self.by_latency() if self.problem.settings.is_timed else self.by_flops()

    def by_flops(self) -> Decision:
        """Find widths under budgets of multiply-accumulates, and of the file's size and memory.

        Raises:
            As ``pruning.allocation.by_flops``.
        """
        if not self._limits_files:
            return by_flops(self.problem)
        with ExitStack() as stack:
            on_cpu = self._on_cpu
            count = _Count(self, on_cpu, self._use, stack)

            def measure(widths: Mapping[str, int]) -> Measured:
                return Measured(footprint=count.of(self._built(on_cpu, widths)))

            return by_flops(self.problem, count.counted, measure, self.progress)

    def by_latency(self) -> Decision:
        """Find widths under budgets of latency or energy, and under all others.

        Raises:
            As ``pruning.allocation.by_latency``.
            TargetError: a budget limits energy, but the target does not report power.
        """
        on_cpu, sides = self._on_cpu, sides_of(self.settings)
        with ExitStack() as stack:
            count = _Count(self, on_cpu, self._use, stack) if self._limits_files else None
            priced = [self._priced(on_cpu, side, stack, alone=len(sides) == 1) for side in sides]
            devices, timers = [device for device, _ in priced], [timer for _, timer in priced if timer is not None]
            counted = count.counted if count else None
            if not self.measured or (not timers and count is None):
                return by_latency(self.problem, devices, counted, None, self.progress)

            def measure(widths: Mapping[str, int]) -> Measured:
                network = self._built(on_cpu, widths)
                times = tuple(timer.measure(network) for timer in timers)
                return Measured(times, count.of(network) if count else None)

            return by_latency(self.problem, devices, counted, measure, self.progress)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata as long as the final file's; the hash of its plan is not known yet."""
        whole = self.original
        described = _Described(
            whole.name, tuple(whole.classes[at] for at in whole.wanted), whole.mean, whole.std, whole.input_shape
        )
        return plan_metadata(described, "0" * SHA256_DIGITS, "original", self._use.interface)

    @property
    def _on_cpu(self) -> nn.Module:
        return copy.deepcopy(self.original.model).cpu()

    @cached_property
    def _given(self) -> nn.Module:
        """The original, which does not resize its images."""
        return copy.deepcopy(self.original.as_given).cpu()

    @cached_property
    def _given_network(self) -> Network:
        return once(self.shared.traces, None, lambda: trace(self._given, self.whole.input_shape))

    @property
    def _use(self) -> Use:
        """The use on the target with the largest file, if targets have different precisions."""
        uses = [use_of(side.target, side.settings) for side in sides_of(self.settings)]
        return max(uses, key=lambda use: WEIGHT[use.precision])

    @property
    def _limits_files(self) -> bool:
        return any(budget.use in ("size", "memory") for budget in self.problem.settings.budgets)

    def _built(self, on_cpu: nn.Module, widths: Mapping[str, int]) -> nn.Module:
        return of_widths(on_cpu, self.problem.network, self.problem.worths, widths)

    def _priced(
        self, on_cpu: nn.Module, side: Side, stack: ExitStack, *, alone: bool
    ) -> tuple[Priced, CandidateTimer | None]:
        """Prices on a device and, if it can be reached, a timer for candidates on it, open as long as ``stack`` is.

        A device has a name unless it is ``alone``.
        """
        use, name = use_of(side.target, side.settings), "" if alone else side.name
        if not reachable(side.target, side.device):
            return Priced(self._estimated(side, use), name, is_measured=False), None
        energy = any(budget.use == "energy" for budget in self.problem.settings.budgets)
        timer = stack.enter_context(
            candidate_timer(
                self._given,
                self.whole.input_shape,
                use,
                load_latency_protocol(CANDIDATES),
                side.settings.export.opset,
                with_energy=energy,
                soak_s=side.settings.bench.soak or 0.0,
                repetition=once(self.shared.repetitions, str(use.of_original), new_repetition),
                exported=self.shared.exported,
            )
        )
        return Priced(self._measured(on_cpu, side, use, timer), name), timer

    def _measured(self, on_cpu: nn.Module, side: Side, use: Use, timer: CandidateTimer) -> Pricing:
        """Prices on a device that can be reached, where the original is timed, too.

        Prices are of the network in the precision and at the input size that it is pruned for; budgets are shares of
        the original. If the two differ, their ratio is measured.
        """
        network, groups, size = self.problem.network, self.problem.scored.prunable, self.original.resized_to
        differs = use.precision != use.own_precision or size is not None
        if not profilable(side.target):
            pricing = self._estimated(side, use, measured=True)
            if not differs:
                return pricing
            us = pricing.cost.predict(full_widths(self.problem.scored))
            return replace(pricing, original_us=us * self._timed("unpruned", on_cpu, size, timer).speedup.median)
        find = partial(
            profile_of,
            use=use,
            protocol=load_profile_protocol(side.settings.profile.protocol),
            progress=self.progress,
            opset=side.settings.export.opset,
        )
        if size is not None and find_profile(on_cpu, self.whole.input_shape, use, network=self.whole) is None:
            return self._scaled(on_cpu, size, find(self._given, self._given_network), timer)
        pricing = measured_pricing(network, groups, find(on_cpu, self.whole))
        speedup = self._timed("unpruned", on_cpu, size, timer).speedup.median if differs else 1.0
        return replace(pricing, original_us=pricing.original_us * speedup)

    def _scaled(
        self, on_cpu: nn.Module, size: tuple[int, int], profile: LatencyProfile, timer: CandidateTimer
    ) -> Pricing:
        """Prices at an input size, by the ``profile`` of the network at its own."""
        use, original_us = timer.files.use, profile.original_us
        if use.precision != use.own_precision:
            original_us *= self._timed("unpruned", self._given, None, timer).speedup.median
        correction = self._correction(on_cpu, size, profile, original_us, timer)
        scaled = scaled_profile(profile, self._given_network.layers, self.whole.layers, correction)
        pricing = measured_pricing(self.problem.network, self.problem.scored.prunable, scaled)
        source = f"{pricing.source}, scaled to input size {size_text(size)}"
        return replace(pricing, original_us=original_us, source=source, errors=None)

    def _correction(
        self,
        on_cpu: nn.Module,
        size: tuple[int, int],
        profile: LatencyProfile,
        original_us: float,
        timer: CandidateTimer,
    ) -> Correction:
        """The correction of predictions for an input size, measured unless it is known.

        Where candidates are not measured, that in the original's precision is near enough.
        """
        known, use = self.shared.corrections, timer.files.use
        for one in (str(use),) if self.measured else (str(use), str(use.of_original)):
            if (size, one) in known and not self._must_repeat(known[size, one]):
                return known[size, one]
        groups, own, layers = self.problem.scored.prunable, self._given_network.layers, self.whole.layers
        narrow = narrow_widths(groups, profile)
        timed = [
            (full_widths(self.problem.scored), self._timed("unpruned", on_cpu, size, timer)),
            (narrow, self._timed("narrow", self._built(on_cpu, narrow), size, timer)),
        ]
        measured = [(widths, original_us / latency.speedup.median) for widths, latency in timed]
        found = correction_of(profile, own, layers, groups, measured)
        known[size, str(use)] = replace(found, disturbed=any(latency.disturbed for _, latency in timed))
        return known[size, str(use)]

    def _timed(
        self, name: str, network: nn.Module, size: tuple[int, int] | None, timer: CandidateTimer
    ) -> CandidateLatency:
        """The latency of a whole ``network`` at an input ``size``; measured once, unless that was disturbed."""
        known, key = self.shared.timed, (name, size, str(timer.files.use))
        if key not in known or self._must_repeat(known[key]):
            known[key] = timer.measure(network, repeat=self.measured)
        return known[key]

    def _must_repeat(self, known: CandidateLatency | Correction) -> bool:
        return known.disturbed and self.measured

    def _estimated(self, side: Side, use: Use, *, measured: bool = False) -> Pricing:
        network, groups, chosen = self.problem.network, self.problem.scored.prunable, self.problem.settings
        original = self._given_network.layers
        return estimated_pricing(network, groups, side.target, use, chosen.d_min, original=original, measured=measured)


@dataclass(frozen=True)
class _Described:
    """The part of the plan that is already known."""

    model: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    input_shape: tuple[int, int, int]


class _Count:
    """Footprints of candidates' files, and models of them."""

    def __init__(self, finding: Finding, on_cpu: nn.Module, use: Use, stack: ExitStack) -> None:
        problem, opset = finding.problem, finding.settings.export.opset
        network, groups = problem.network, problem.scored.prunable
        self._files = stack.enter_context(candidate_files(use, opset, network.input_shape, finding.metadata))
        original = footprint_of(self._files.write(finding._given, "original", use.own_precision), use.batch)
        is_original = use.precision == use.own_precision and finding.original.resized_to is None
        now = original if is_original else self.of(on_cpu)
        uses = {budget.use for budget in problem.settings.budgets}
        self.counted = Counted(
            macs=FlopsCost(network.layers, groups, network.other_macs),
            original_macs=problem.whole_macs,
            size=SizeCost(network.layers, groups, use.precision, now.file_bytes) if "size" in uses else None,
            memory=peak_memory(on_cpu, finding.whole, groups, use, opset, finding.progress.note)
            if "memory" in uses
            else None,
            original=original,
        )

    def of(self, network: nn.Module) -> Footprint:
        """The footprint of the file of ``network``."""
        return self._files.footprint(network)
