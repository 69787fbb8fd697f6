"""Find widths that meet the budgets for a network in memory, with prices and candidates on the target."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from catro_deploy.budget import MEDIAN
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.graph.coupling.trace import Network
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
from catro_deploy.latency.repetition import Repetition
from catro_deploy.latency.size import WEIGHT, SizeCost
from catro_deploy.latency.template import Widths
from catro_deploy.progress import Progress
from catro_deploy.pruning.allocation import Decision, by_flops, by_latency
from catro_deploy.pruning.budgets import Counted, Priced
from catro_deploy.pruning.candidates import Candidates
from catro_deploy.pruning.cutting import Classifier
from catro_deploy.pruning.prices import MeasuredPrices, estimated_prices
from catro_deploy.pruning.shared import Shared, once
from catro_deploy.pruning.solvers import Problem
from catro_deploy.settings import Settings
from catro_deploy.transports.execution import Use, use_of
from catro_deploy.transports.reach import reachable
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
            count = _Count(self, stack)

            def measure(widths: Widths) -> Measured:
                return Measured(footprint=count.of(self._candidates.module(widths)))

            return by_flops(self.problem, count.counted, measure, self.progress)

    def by_latency(self) -> Decision:
        """Find widths under budgets of latency or energy, and under all others.

        Raises:
            As ``pruning.allocation.by_latency``.
            TargetError: a budget limits energy, but the target does not report power.
        """
        candidates, sides = self._candidates, sides_of(self.settings)
        with ExitStack() as stack:
            count = _Count(self, stack) if self._limits_files else None
            priced = [self._priced(side, stack, alone=len(sides) == 1) for side in sides]
            devices, timers = [device for device, _ in priced], [timer for _, timer in priced if timer is not None]
            counted = count.counted if count else None
            if not self.measured or (not timers and count is None):
                return by_latency(self.problem, devices, counted, None, self.progress)

            def measure(widths: Widths) -> Measured:
                times = tuple(
                    timer.measure(candidates.to_time(widths, candidates.size, timer.files)) for timer in timers
                )
                return Measured(times, count.of(candidates.module(widths)) if count else None)

            return by_latency(self.problem, devices, counted, measure, self.progress)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata as long as the final file's; the hash of its plan is not known yet."""
        whole = self.original
        described = _Described(
            whole.name, tuple(whole.classes[at] for at in whole.wanted), whole.mean, whole.std, whole.input_shape
        )
        return plan_metadata(described, "0" * SHA256_DIGITS, "original", self._use.interface)

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self.original, self.whole, self.problem, self.shared)

    @property
    def _use(self) -> Use:
        """The use on the target with the largest file, if targets have different precisions."""
        uses = [use_of(side.target, side.settings) for side in sides_of(self.settings)]
        return max(uses, key=lambda use: WEIGHT[use.precision])

    @property
    def _limits_files(self) -> bool:
        return any(budget.use in ("size", "memory") for budget in self.problem.settings.budgets)

    def _priced(self, side: Side, stack: ExitStack, *, alone: bool) -> tuple[Priced, CandidateTimer | None]:
        """Prices on a device and, if it can be reached, a timer for candidates on it, open as long as ``stack`` is.

        A device has a name unless it is ``alone``.
        """
        use, name = use_of(side.target, side.settings), "" if alone else side.name
        if not reachable(side.target, side.device):
            return Priced(estimated_prices(self._candidates, side, use), name, is_measured=False), None
        energy = any(budget.use == "energy" for budget in self.problem.settings.budgets)
        timer = stack.enter_context(
            candidate_timer(
                self._candidates.given,
                self.whole.input_shape,
                use,
                load_latency_protocol(CANDIDATES),
                side.settings.export.opset,
                with_energy=energy,
                soak_s=side.settings.bench.soak or 0.0,
                repetition=self._repetition(use),
                exported=self.shared.exported,
            )
        )
        prices = MeasuredPrices(self._candidates, side, timer, self.progress, exact=self.measured)
        return Priced(prices.pricing(), name), timer

    def _repetition(self, use: Use) -> Repetition[CandidateLatency]:
        """How measurements against the original are repeated, shared by all budgets of the same percentiles."""
        percentiles = sorted({budget.percentile for budget in self.problem.settings.budgets} - {MEDIAN})
        key = f"{use.of_original} {percentiles}"
        return once(self.shared.repetitions, key, lambda: new_repetition(percentiles))


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

    def __init__(self, finding: Finding, stack: ExitStack) -> None:
        candidates, use = finding._candidates, finding._use
        problem, opset = finding.problem, finding.settings.export.opset
        network, groups = problem.network, problem.scored.prunable
        self._files = stack.enter_context(candidate_files(use, opset, network.input_shape, finding.metadata))
        original = footprint_of(self._files.write(candidates.given, "original", use.own_precision), use.batch)
        is_original = use.precision == use.own_precision and candidates.size is None
        now = original if is_original else self.of(candidates.unpruned)
        uses = {budget.use for budget in problem.settings.budgets}
        self.counted = Counted(
            macs=FlopsCost(network.layers, groups, network.other_macs),
            original_macs=problem.whole_macs,
            size=SizeCost(network.layers, groups, use.precision, now.file_bytes) if "size" in uses else None,
            memory=peak_memory(candidates.unpruned, finding.whole, groups, use, opset, finding.progress.note)
            if "memory" in uses
            else None,
            original=original,
        )

    def of(self, network: nn.Module) -> Footprint:
        """The footprint of the file of ``network``."""
        return self._files.footprint(network)
