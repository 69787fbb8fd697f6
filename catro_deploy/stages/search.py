"""``search``: the smallest latency at which accuracy on validation images falls by no more than is allowed.

Where the images have no labels, are too few, or were probably trained on by the original, agreement with the original
counts in place of accuracy; where they are too few, divergence from its outputs as well.

A few budgets are tried, each pruned and fine-tuned briefly; the interval between the smallest that keeps the accuracy
and the largest that does not is bisected on a logarithmic scale. The network found is then fine-tuned in full.
"""

import math
from collections.abc import Callable

from catro_deploy import networks
from catro_deploy.assessment.basis import Basis, resolution_warning
from catro_deploy.data.base import is_unlabelled
from catro_deploy.errors import MissedError, SettingsError
from catro_deploy.progress import Progress
from catro_deploy.records import Budgets, FrontPoint, Search, TriedPoint
from catro_deploy.report.agreement import METRICS, metric_words
from catro_deploy.report.wording import loss_words, nats, points
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import load_if_there, save
from catro_deploy.settings import Settings
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.held_out import HeldOut, held_out_of, logits_of
from catro_deploy.stages.prune import prune
from catro_deploy.stages.trials import shortened, trial_folder
from catro_deploy.stages.verdict import tuning_advice
from catro_deploy.statistics.agreement import agreement_of, gains_and_losses
from catro_deploy.statistics.divergence import scaled_kl_nats
from catro_deploy.statistics.intervals import paired_difference
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import require_reachable

__all__ = ["halve", "on_front", "search"]

POINTS = 5
FIRST, LEAST = 0.5, 0.1


def search(settings: Settings, run: RunFolder, progress: Progress) -> Search:
    """Find the smallest budget that loses no more on validation images than ``[verify] max_drop``; write search.json.

    A budget whose trial has finished is not tried again; an interrupted trial is resumed.

    Raises:
        TargetError: the target cannot be measured from here.
        SettingsError: the allowed loss is not set.
        DataError: there are no validation images.
        MissedError: no budget that was tried keeps the accuracy; search.json is not written.
    """
    require_reachable(load_target(settings.prune.target), settings.prune.device, "search")
    allowed = settings.verify.max_drop
    if allowed is None:
        raise SettingsError("A search needs an allowed loss.", "Give it in points: --max-drop 0.5")
    held_out = held_out_of(settings, progress)
    basis = held_out.basis
    limits = basis.limits(basis.original_score, 0.0, allowed)
    if warning := resolution_warning(len(basis.expected), allowed):
        progress.note(warning)
    if basis.reason:
        metrics = metric_words(basis.metric, limits.largest_kl_nats is not None)
        progress.note(f"search: decides by {metrics}, since {basis.reason}")

    def keeps(point: TriedPoint) -> bool:
        score = basis.recorded_score(point)
        return score is not None and basis.keeps(score, point.scaled_kl_nats, limits)

    def attempt(share: float) -> bool:
        ended = _try(share, settings, run, progress, held_out)
        point = on_front(ended, basis, keeps(ended))
        tried.append(point)
        drop = point.drop_points
        found = "no network meets it" if drop is None else f"{points(-drop)} points{_interval(point)}"
        if point.scaled_kl_nats is not None and limits.largest_kl_nats is not None:
            found += f", divergence {nats(point.scaled_kl_nats)} of at most {nats(limits.largest_kl_nats)}"
        outcome = "" if drop is None else ": kept" if point.kept else ": loses too much"
        progress.note(f"search {len(tried)} of {POINTS}: {point.budget}, {found}{outcome}")
        return point.kept

    tried: list[FrontPoint] = []
    found = halve(attempt)
    if found is None:
        advice = tuning_advice(settings.finetune.epochs)
        trained = "after a short fine-tuning" if settings.finetune.epochs else "without fine-tuning"
        raise MissedError(
            f"None of the budgets {', '.join(point.budget for point in tried)} keeps the {METRICS[basis.metric]} on "
            f"validation images within {loss_words(allowed)} {trained}.",
            f"{resolution_warning(len(basis.expected), allowed)} {advice} Or name a budget (--budget 0.9x).".strip(),
        )
    record = Search(
        **vars(basis.record) | {"largest_kl_nats": limits.largest_kl_nats},
        budget=_budget(found),
        max_drop=allowed,
        epochs=shortened(settings).finetune.epochs,
        front=tuple(sorted(tried, key=lambda point: point.share)),
    )
    save(record, run)
    return record


def _budget(share: float) -> str:
    """A ``share`` of the original's latency, as ``--budget`` takes it."""
    return f"{share:g}x"


def on_front(tried: TriedPoint, basis: Basis, kept: bool) -> FrontPoint:
    """``tried`` with its loss in points: of accuracy (negative if it rose), or 100% minus the agreement."""
    score = basis.recorded_score(tried)
    drop = None if score is None else round((basis.original_score - score) * 100, 9)
    own = {name: value for name, value in vars(tried).items() if name != "format"}
    return FrontPoint(**own, budget=_budget(tried.share), drop_points=drop, kept=kept)


def halve(keeps: Callable[[float], bool]) -> float | None:
    """The smallest of ``POINTS`` shares that ``keeps`` accepts, None if there is none.

    ``keeps`` is assumed to be monotone: no share below a rejected one is tried.
    """
    low, high, share = LEAST, 1.0, FIRST
    best: float | None = None
    for _ in range(POINTS):
        if keeps(share):
            best = high = share
        else:
            low = share
        share = round(math.sqrt(low * high), 3)
    return best


def _try(share: float, settings: Settings, run: RunFolder, progress: Progress, held_out: HeldOut) -> TriedPoint:
    """Prune to ``share`` of the original's latency and fine-tune briefly, in its own folder.

    The folder keeps point.json and the pruned network, which later stages continue with.
    """
    pruning = settings.prune.model_copy(update={"budget": Budgets.parse(_budget(share))})
    asked = settings.model_copy(update={"prune": pruning})
    folder = trial_folder(asked, run)
    if (ended := load_if_there(TriedPoint, folder)) is not None:
        return ended
    with folder.lock():
        point = _prune_and_finetune(share, shortened(asked), folder, progress, held_out)
        save(point, folder)
        for file in folder.path.glob("*"):
            if file not in (folder.point, folder.plan, folder.pruned_weights, folder.path / ".lock"):
                file.unlink()
    return point


def _prune_and_finetune(
    share: float, tried: Settings, folder: RunFolder, progress: Progress, held_out: HeldOut
) -> TriedPoint:
    try:
        if folder.plan.is_file():
            plan = load_plan(folder)
        else:
            plan = prune(tried, folder, progress, held_out.look, held_out.shared)
    except MissedError:
        return TriedPoint(share)
    history = finetune(tried, folder, progress, held_out)
    assert plan.latency is not None
    (speedup,) = [one.speedup for one in plan.latency.rounds if one.taken]
    logits, labels = logits_of(networks.load(folder), held_out.images, tried), held_out.images.labels
    found = agreement_of(held_out.logits, logits)
    counts = None if is_unlabelled(labels) else gains_and_losses(held_out.logits, logits, labels)
    interval = paired_difference(*counts, len(labels)) if counts else None
    macs_share = plan.pruned_macs / plan.original_macs
    return TriedPoint(
        share=share,
        speedup=speedup,
        validation_accuracy=history.validation_accuracy,
        macs_share=macs_share,
        agreement=found.share,
        mean_kl_nats=found.mean_kl_nats,
        change_ci95=interval,
        scaled_kl_nats=scaled_kl_nats(held_out.logits, logits),
    )


def _interval(point: FrontPoint) -> str:
    """The interval of the change of accuracy, as text for the screen."""
    if point.change_ci95 is None:
        return " on validation images"
    return f" on validation images (accuracy, 95% CI: {' to '.join(points(100 * end) for end in point.change_ci95)})"
