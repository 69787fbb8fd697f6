"""``quantize``: the precision in which the pruned network is served, decided by measurement.

Each possible precision is written; its accuracy on validation images and its latency, interleaved with the original,
are measured on the device. One that is slower, or costs more accuracy than is allowed, is not shipped. Where the images
have no labels, are too few, or were probably trained on by the original, agreement with the original counts in place of
accuracy; where they are too few, divergence from its outputs as well.
"""

from collections.abc import Mapping

from catro_deploy.agent.results import facts_record
from catro_deploy.assessment.basis import Basis, Limits, resolution_warning, strictest
from catro_deploy.errors import MissedError
from catro_deploy.progress import Progress
from catro_deploy.records import Candidate, Precision, Quantize
from catro_deploy.report.agreement import METRICS, metric_words
from catro_deploy.report.wording import nats, ratios
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import save
from catro_deploy.settings import AUTO, Settings
from catro_deploy.stages.candidates import Candidates
from catro_deploy.targets import load_target
from catro_deploy.transports import reached
from catro_deploy.transports.reach import require_reachable

__all__ = ["decide", "quantize"]

NOT_FASTER = "it is not measurably faster"
NOTHING_LEFT = "no part of it can be quantised within the limits"
ALLOW = "Allow more with [quantize] max_drop. "
EVERY: tuple[Precision, ...] = ("fp32", "fp16", "int8")


def quantize(settings: Settings, run: RunFolder, progress: Progress) -> Quantize:
    """Find the precision in which the pruned network of ``run`` is served; write and return quantize.json.

    Raises:
        TargetError: networks cannot be run on the target from here.
        RunFolderError: the plan or an ONNX file is missing.
        DataError: a class has no image to calibrate with, or no class has one to evaluate on.
        NumericsError: a value of the network is not finite.
        MissedError: the precision that was requested by name is slower than the target's own, or costs too much
            accuracy; quantize.json, which then names the target's own, is written first.
    """
    # Results that were carried back never have what is measured here: a bundle is made after this stage.
    target, device = load_target(settings.prune.target), settings.prune.device
    require_reachable(target, device, "quantize")
    work = Candidates(settings, run, load_plan(run), target, device, progress)
    own: Precision = target.precision
    asked = settings.quantize.precision
    others = [one for one in EVERY if one != own and asked in (one, AUTO)]
    basis = work.basis
    if warning := resolution_warning(len(basis.expected), settings.quantize.max_drop):
        progress.note(warning)
    limits = _limits(work, settings)
    if basis.reason:
        metrics = metric_words(basis.metric, limits.largest_kl_nats is not None)
        progress.note(f"quantize: decides by {metrics}, since {basis.reason}")
    made = {precision: work.make(precision, limits) for precision in others}
    measured = work.measured([own, *(precision for precision, how in made.items() if how.kept is not None)])
    shipped, lost = decide(measured, own, basis, limits)
    lost |= {one: NOTHING_LEFT for one in made if one not in measured}
    record = Quantize(
        **vars(basis.record) | vars(limits),
        asked=asked,
        own=own,
        shipped=shipped,
        candidates=measured,
        lost=lost,
        made=made,
        protocol=settings.bench.protocol,
        environment={
            "target": target.name,
            "how": "measured",
            "reached": reached(device),
            **facts_record(work.facts),
        },
    )
    save(record, run)
    if asked not in (AUTO, shipped):
        (other,) = others
        allow = "" if other in measured and _is_within(measured[other], basis, limits) else ALLOW
        raise MissedError(
            f"{asked} is not shipped: {lost[other]}. The pruned network is served in {shipped}.",
            f"All figures are in {run.quantize}. {allow}To serve the fastest precision: --precision auto",
        )
    return record


def decide(
    candidates: Mapping[Precision, Candidate], own: Precision, basis: Basis, limits: Limits
) -> tuple[Precision, dict[Precision, str]]:
    """The fastest of ``candidates`` that is shown to be faster than ``own`` and is within ``limits`` by ``basis``.

    Returns:
        Its precision, or ``own`` if there is none; and why each of the others lost, as half a sentence each.
    """
    lost: dict[Precision, str] = {}
    mine = candidates[own]
    for name, one in candidates.items():
        if name == own:
            continue
        if not _is_within(one, basis, limits):
            lost[name] = _too_much_lost(one, basis, limits)
        elif one.speedup.ci95[0] <= mine.speedup.ci95[1]:
            longer = mine.speedup.median / one.speedup.median
            times = f"{ratios(longer)[0]} times as long as {own}"
            overlap = one.speedup.ci95[1] >= mine.speedup.ci95[0]
            lost[name] = f"{NOT_FASTER} ({times}, within the noise)" if overlap else f"it takes {times}"
    left = [name for name in candidates if name != own and name not in lost]
    best = min(left, key=lambda name: candidates[name].speedup.ratio, default=own)
    for name in [*left, own]:
        if name != best:
            longer = candidates[best].speedup.median / candidates[name].speedup.median
            lost[name] = f"it takes {ratios(longer)[0]} times as long as {best}"
    return best, lost


def _is_within(one: Candidate, basis: Basis, limits: Limits) -> bool:
    return basis.keeps(one.score, one.scaled_kl_nats, limits)


def _too_much_lost(one: Candidate, basis: Basis, limits: Limits) -> str:
    most = limits.largest_kl_nats
    if most is None or not basis.keeps(one.score, most, limits):
        kept = f"{one.score:.2%}, at least {limits.least_score:.2%} is required"
        return f"its {METRICS[basis.metric]} on validation images is {kept}"
    found = nats(one.scaled_kl_nats)
    return f"its divergence from the original on validation images is {found}, at most {nats(most)} is allowed"


def _limits(work: Candidates, settings: Settings) -> Limits:
    """The limits relative to the pruned network and, if the pruned network meets those, also to the original."""
    basis, allowed = work.basis, settings.verify.max_drop
    score, divergence = basis.score(work.own["pruned"]), work.divergence(work.own["pruned"])
    least = basis.limits(score, divergence, settings.quantize.max_drop)
    if allowed is None:
        return least
    whole = basis.limits(basis.score(work.own["original"]), 0.0, allowed)
    return strictest(least, whole) if basis.keeps(score, divergence, whole) else least
