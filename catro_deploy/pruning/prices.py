"""Prices of widths on one device: by its profile, adjusted by timing whole networks, or estimated."""

from dataclasses import dataclass, replace

from torch import nn

from catro_deploy.calibration import load_profile_protocol
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.latency.candidate import CandidateLatency, CandidateTimer
from catro_deploy.latency.pricing import Pricing, estimated_pricing, measured_pricing, profile_of
from catro_deploy.latency.profile import LatencyProfile, find_profile
from catro_deploy.latency.scaling import Correction, correction_of, narrow_widths, scaled_profile
from catro_deploy.latency.template import Widths
from catro_deploy.progress import Progress
from catro_deploy.pruning.candidates import Candidates
from catro_deploy.pruning.shared import Size
from catro_deploy.pruning.values import full_widths
from catro_deploy.settings.sides import size_text
from catro_deploy.transports.execution import Use
from catro_deploy.transports.reach import profilable
from catro_deploy.transports.sides import Side

__all__ = ["MeasuredPrices", "estimated_prices"]


def estimated_prices(candidates: Candidates, side: Side, use: Use, *, measured: bool = False) -> Pricing:
    """Prices by the target's data sheet; ``measured`` says whether budgets are met by measurements on it."""
    problem = candidates.problem
    original = candidates.given_network.layers
    groups, d_min = problem.scored.prunable, problem.settings.d_min
    return estimated_pricing(problem.network, groups, side.target, use, d_min, original=original, measured=measured)


@dataclass(frozen=True)
class MeasuredPrices:
    """Prices on the device of ``side``, which can be reached: ``timer`` times whole networks on it.

    If they must be ``exact``, disturbed measurements of whole networks are repeated. Otherwise, one correction for an
    input size serves all precisions.
    """

    candidates: Candidates
    side: Side
    timer: CandidateTimer
    progress: Progress
    exact: bool

    def pricing(self) -> Pricing:
        """Prices of the network in the precision and at the input size that it is pruned for.

        Budgets are shares of the original. If the two differ, their ratio is measured.
        """
        candidates, use = self.candidates, self._use
        size, unpruned, whole = candidates.size, candidates.unpruned, candidates.whole
        differs = use.precision != use.own_precision or size is not None
        if not profilable(self.side.target):
            pricing = estimated_prices(candidates, self.side, use, measured=True)
            if not differs:
                return pricing
            return replace(pricing, original_us=pricing.cost.predict(self._full) * self._unpruned_speedup(size))
        if size is not None and find_profile(unpruned, whole.input_shape, use, network=whole) is None:
            return self._scaled(size, self._profile(candidates.given, candidates.given_network))
        pricing = self._priced(self._profile(unpruned, whole))
        speedup = self._unpruned_speedup(size) if differs else 1.0
        return replace(pricing, original_us=pricing.original_us * speedup)

    @property
    def _use(self) -> Use:
        return self.timer.files.use

    @property
    def _full(self) -> Widths:
        return full_widths(self.candidates.problem.scored)

    def _profile(self, model: nn.Module, network: Network) -> LatencyProfile:
        settings = self.side.settings
        protocol = load_profile_protocol(settings.profile.protocol)
        return profile_of(model, network, self._use, protocol, self.progress, opset=settings.export.opset)

    def _priced(self, profile: LatencyProfile) -> Pricing:
        problem = self.candidates.problem
        return measured_pricing(problem.network, problem.scored.prunable, profile)

    def _scaled(self, size: Size, profile: LatencyProfile) -> Pricing:
        """Prices at the input size ``size``, by the ``profile`` of the network at its own."""
        use, original_us = self._use, profile.original_us
        if use.precision != use.own_precision:
            original_us *= self._unpruned_speedup(None)
        correction = self._correction(size, profile, original_us)
        own, layers = self.candidates.given_network.layers, self.candidates.whole.layers
        pricing = self._priced(scaled_profile(profile, own, layers, correction))
        source = f"{pricing.source}, scaled to input size {size_text(size)}"
        return replace(pricing, original_us=original_us, source=source, errors=None)

    def _correction(self, size: Size, profile: LatencyProfile, original_us: float) -> Correction:
        """The correction of predictions for an input size, measured unless it is known.

        If prices need not be exact, that in the original's precision is near enough.
        """
        known, use = self.candidates.shared.corrections, self._use
        for one in (str(use),) if self.exact else (str(use), str(use.of_original)):
            if (size, one) in known and not self._must_repeat(known[size, one]):
                return known[size, one]
        groups = self.candidates.problem.scored.prunable
        own, layers = self.candidates.given_network.layers, self.candidates.whole.layers
        narrow = narrow_widths(groups, profile)
        timed = [
            (self._full, self._timed("unpruned", self._full, size)),
            (narrow, self._timed("narrow", narrow, size)),
        ]
        measured = [(widths, original_us / latency.speedup.median) for widths, latency in timed]
        found = correction_of(profile, own, layers, groups, measured)
        known[size, str(use)] = replace(found, disturbed=any(latency.disturbed for _, latency in timed))
        return known[size, str(use)]

    def _unpruned_speedup(self, size: Size | None) -> float:
        return self._timed("unpruned", self._full, size).speedup.median

    def _timed(self, name: str, widths: Widths, size: Size | None) -> CandidateLatency:
        """The latency of a whole network at an input ``size``; measured once, unless that was disturbed."""
        known, key = self.candidates.shared.timed, (name, size, str(self._use))
        if key not in known or self._must_repeat(known[key]):
            network = self.candidates.to_time(widths, size, self.timer.files)
            known[key] = self.timer.measure(network, repeat=self.exact)
        return known[key]

    def _must_repeat(self, known: CandidateLatency | Correction) -> bool:
        return known.disturbed and self.exact
