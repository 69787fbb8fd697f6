"""Pruning a classifier in memory: from images to a cut network and its plan.

The command line's stage opens a checkpoint and a dataset; the Python API gets a module and a loader from the caller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from catro_deploy.graph.coupling.macs import count_macs
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.graph.fx.features import Labelled, images_at_once
from catro_deploy.graph.fx.worths import branch_worths
from catro_deploy.progress import Progress
from catro_deploy.pruning.cutting import Classifier, Cut, Pruned, at_input_size, cut_classifier, without_branches
from catro_deploy.pruning.finding import Finding
from catro_deploy.pruning.scoring import Scored, score_channels, survey_groups
from catro_deploy.pruning.selection import choose_channels, chosen_by_readers
from catro_deploy.pruning.shared import Shared, once
from catro_deploy.pruning.solvers import Problem, measures_worth
from catro_deploy.reconstruction.correction import dropped_by
from catro_deploy.reconstruction.images import MixedImages
from catro_deploy.reconstruction.reconstructor import FULL, SCREENING, Effort, Reconstructor
from catro_deploy.records import Branch, GroupPlan, Keep
from catro_deploy.settings import PruneSettings, Settings
from catro_deploy.training.compute import choose_device, choose_hardware
from catro_deploy.training.normalised import NormalisedBatches

__all__ = ["ScreenedNetwork", "prune_classifier", "scoring_batch_size", "screen_classifier"]


@dataclass(frozen=True)
class ScreenedNetwork:
    """A network that was not exported: its divergence from the given original's outputs, and its removed branches."""

    kl_nats: float
    dropped: int


def scoring_batch_size(original: Classifier, settings: PruneSettings) -> int:
    """Images per batch for ``prune_classifier``: ``batch_size`` on a GPU; on a CPU, at most as many as run fast.

    Raises:
        SettingsError: a GPU is requested, but none is available.
        ModelError: the network fails on an image.
    """
    if choose_device(settings.compute).type != "cpu":
        return settings.batch_size
    return images_at_once(original.model, original.input_shape, settings.batch_size)


def prune_classifier(
    original: Classifier,
    batches: Sequence[Labelled],
    settings: Settings,
    progress: Progress,
    *,
    labelled: bool = True,
    shared: Shared | None = None,
) -> Pruned:
    """Choose the channels of ``original`` to keep, by ``batches`` of normalised images, class by class, and cut it.

    Of ``settings``, [prune], [profile], [bench] and [export] are used. If images are not ``labelled``, the worth of
    widths is always measured, and channels are chosen by their consumers or by norms; see
    ``require_pruning_without_labels``. Prunings of one checkpoint by the same images can use the same ``shared``.

    Raises:
        UsageError: settings, network, images or budget are incompatible.
        MissedError: no network meets a latency budget.
        NumericsError: a feature map is not finite, or a layer's channels are dead.
        FaultError: the pruned network does not compute what the masked original computes.
    """
    return _pruning(original, batches, settings, progress, labelled, shared or Shared(), FULL).pruned()


def screen_classifier(
    original: Classifier,
    batches: Sequence[Labelled],
    settings: Settings,
    progress: Progress,
    *,
    labelled: bool = True,
    shared: Shared,
) -> ScreenedNetwork | None:
    """How a pruning with these settings would probably turn out.

    The arguments are those of ``prune_classifier``. Widths are allocated by predicted latency, and the network is
    reconstructed from a few images, in floating point. None: some groups could not be reconstructed.

    Raises:
        As ``prune_classifier``; MissedError: no network is predicted to meet a budget.
    """
    return _pruning(original, batches, settings, progress, labelled, shared, SCREENING).screened()


def _pruning(
    original: Classifier,
    batches: Sequence[Labelled],
    settings: Settings,
    progress: Progress,
    labelled: bool,
    shared: Shared,
    effort: Effort,
) -> "_Pruning":
    device = choose_device(settings.prune.compute)
    original = at_input_size(original, settings.prune.input_size)
    whole = once(shared.traces, original.resized_to, lambda: trace(original.model, original.input_shape))
    network = whole.leaving(settings.prune.ignore)
    original.model.to(device)
    if device.type != "cpu":  # lazy batches stay lazy: there may be many
        batches = [(images.to(device), label) for images, label in batches]
    keeper = None
    if settings.prune.reconstruct or settings.prune.criterion == "obs":
        hardware = choose_hardware(original.model, settings.prune.compute, False, original.input_shape)
        # Large matrices are accumulated once per batch, so slightly more images than fit the cache are faster.
        at_once = min(4 * scoring_batch_size(original, settings.prune), settings.prune.batch_size)
        images = _some_images(batches, settings.prune.reconstruct_images, at_once, hardware.memory_format)
        measurements = shared.measurements_for(settings.prune)
        keeper = Reconstructor(original.model, network, images, settings.prune, progress, measurements, effort)
    return _Pruning(original, whole, network, batches, settings, progress, keeper, labelled, shared)


@dataclass(frozen=True)
class _Pruning:
    """One pruning: its network, images and settings, and what its steps share.

    ``whole`` is the trace of ``original``; in ``network`` the modules to ignore are fixed.
    """

    original: Classifier
    whole: Network
    network: Network
    batches: Sequence[Labelled]
    settings: Settings
    progress: Progress
    keeper: Reconstructor | None
    labelled: bool
    shared: Shared

    def pruned(self) -> Pruned:
        """Score, allocate, choose the channels, cut and, if enabled, reconstruct."""
        scored = self._scored()
        branches = self._branches(scored)
        decision = self._finding(scored, branches, measured=True).decision()
        gone = dropped_by(decision.widths, tuple(branches))
        groups = self._chosen(scored, decision.widths, gone)
        cut = Cut(groups, gone, decision.method, decision.latency, decision.path, decision.budgets, decision.latency_on)
        pruned = cut_classifier(self.original, self.network, cut, self.batches[0][0].cpu(), self.settings)
        if self.keeper is None or not self.settings.prune.reconstruct:
            return pruned
        return _reconstructed(self.original, pruned, self.keeper, decision.loss)

    def screened(self) -> ScreenedNetwork | None:
        """The network after allocation by predictions and reconstruction; None if some groups cannot be followed."""
        scored, keeper = self._scored(), self.keeper
        if keeper is None or not all(keeper.follows(group) for group in scored.prunable):
            return None
        branches = self._branches(scored)
        widths = self._finding(scored, branches, measured=False).decision().widths
        gone = [branch.name for branch in dropped_by(widths, tuple(branches))]
        given = self.original.as_given.to(choose_device(self.settings.prune.compute))
        return ScreenedNetwork(keeper.loss_from(given, widths, gone), len(gone))

    def _scored(self) -> Scored:
        """The groups that may be pruned; with their scatters, unless worth is measured."""
        chosen, keeper = self.settings.prune, self.keeper
        measured = measures_worth(chosen)
        if keeper is not None and (not self.labelled or (measured and _can_measure(self.network, keeper))):
            return survey_groups(self.network, keeper.follows, chosen)
        model, network, batches = self.original.model, self.network, self.batches
        return self.shared.scored_once(chosen, lambda: score_channels(model, network, batches, chosen, self.progress))

    def _branches(self, scored: Scored) -> dict[Branch, float]:
        """The residual branches that may be removed; with their worth, if that is class separation."""
        chosen, model = self.settings.prune, self.original.model
        by_flops_alone = not chosen.is_timed or chosen.allocation in ("flops", "uniform")
        if by_flops_alone or chosen.depth == "never":
            return {}
        prunable = {group.name for group in scored.prunable}
        found = find_branches(model, self.network)
        branches = [branch for branch in found if prunable.issuperset(branch.groups)]
        if not scored.scatters:
            return dict.fromkeys(branches, 0.0)
        worths = self.shared.branch_worths_once(
            chosen, lambda: branch_worths(model, self.network, branches, self.batches)
        )
        return {branch: worths[branch.name] for branch in branches}

    def _finding(self, scored: Scored, branches: Mapping[Branch, float], *, measured: bool) -> Finding:
        macs = count_macs(self.original.as_given, self.original.input_shape)
        problem = Problem(self.network, scored, self.settings.prune, branches, self.keeper, macs)
        return Finding(self.original, self.whole, problem, self.settings, self.progress, self.shared, measured)

    def _chosen(self, scored: Scored, widths: Mapping[str, int], gone: Sequence[Branch]) -> list[GroupPlan]:
        """The channels to keep without the branches ``gone``: chosen by their consumers, if those can be followed."""
        chosen, keeper = self.settings.prune, self.keeper
        shallow, rest = without_branches(self.original.model.cpu(), self.network, gone)
        by_readers = {}
        if keeper is not None and chosen.criterion != "l1":
            by_readers = chosen_by_readers(rest, scored, keeper, widths)
        if all(group.name in by_readers for group in rest.groups):
            return list(by_readers.values())
        model = shallow.to(choose_device(chosen.compute))
        some_gone = not all(widths.values())
        if scored.scatters and some_gone and any(widths.get(group.name) for group in rest.groups):
            scored = score_channels(model, rest, self.batches, chosen, self.progress).keeping(scored)
        groups = choose_channels(model, rest, scored, widths, self.batches, chosen, self.progress)
        return [by_readers.get(group.name, group) for group in groups]


def _can_measure(network: Network, keeper: Reconstructor) -> bool:
    """Whether worth can be measured for most channels; groups for which it cannot would keep all channels."""
    free = [group for group in network.groups if not group.fixed]
    mostly = 2 * sum(group.width for group in free if keeper.follows(group)) >= sum(group.width for group in free)
    if not mostly:
        keeper.progress.note("worth cannot be measured for most channels: class separation (scatter) is used instead")
    return mostly


def _reconstructed(original: Classifier, pruned: Pruned, keeper: Reconstructor, loss_predicted: float | None) -> Pruned:
    keeps = dict(pruned.plan.keeps)
    if not original.has_whole_head:  # this network's head returns the logits of the wanted classes only
        keeps[original.head] = Keep(None, keeps[original.head].inputs)
    model, record = keeper.reconstructed(pruned.model, keeps, pruned.plan.dropped)
    record = replace(record, loss_predicted=loss_predicted)
    return Pruned(model, replace(pruned.plan, reconstruction=record))


def _some_images(
    batches: Sequence[Labelled], count: int, at_once: int, memory_format: torch.memory_format
) -> MixedImages:
    """About ``count`` images, taken evenly from all ``batches``, in batches of ``at_once`` with mixed classes.

    uint8 images stay uint8 until they are read, and nothing is copied: a copy may take half a GiB.
    """
    each = max(1, round(count / len(batches)))
    kept = batches.pixels if isinstance(batches, NormalisedBatches) else batches
    images = [image for piece, _ in kept for image in piece[:each]]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:count].tolist()
    sizes = [min(at_once, len(order) - start) for start in range(0, len(order), at_once)]

    def finish(batch: torch.Tensor) -> torch.Tensor:
        read = batches.normalised(batch) if isinstance(batches, NormalisedBatches) else batch
        return read.contiguous(memory_format=memory_format)

    return MixedImages(images, order, sizes, finish)
