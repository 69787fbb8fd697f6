"""``quantize``: the number format in which the pruned network is served, decided by measurement.

Each precision that comes into question is written; its accuracy is measured on validation images and its latency in
turns with the original, both on the device. One that is slower, or costs more accuracy than is allowed, is not shipped.
Where the images have no labels, are too few, or were probably trained on by the original, agreement with the original
counts in place of accuracy.
"""

from collections.abc import Mapping

from catro_deploy.agent.results import facts_record
from catro_deploy.errors import MissedError
from catro_deploy.progress import Progress
from catro_deploy.records import Candidate, Measure, Precision, Quantize
from catro_deploy.report.agreement import MEASURES
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import save
from catro_deploy.settings import AUTO, Settings
from catro_deploy.stages.basis import resolution_warning
from catro_deploy.stages.candidates import Candidates
from catro_deploy.targets import load_target
from catro_deploy.transports import device_of, reached
from catro_deploy.transports.reach import require_reachable

__all__ = ["decide", "quantize"]

NOTHING_LEFT = "no part of it in integers keeps what must be kept"
EVERY: tuple[Precision, ...] = ("fp32", "fp16", "int8")


def quantize(settings: Settings, run: RunFolder, progress: Progress) -> Quantize:
    """Find the precision in which the pruned network of ``run`` is served; write and return quantize.json.

    Raises:
        TargetError: networks cannot be run on the target from here.
        RunFolderError: the plan or an ONNX file is missing.
        DataError: a class has no image to calibrate by, or no class has one to judge by.
        NumericsError: a value of the network is not finite.
        MissedError: the precision that was asked for by name is slower than the target's own, or costs too much
            accuracy; quantize.json, which then names the target's own, is written before.
    """
    target, device = load_target(settings.prune.target), device_of(settings.prune.device, run)
    require_reachable(target, device, "quantize")
    work = Candidates(settings, run, load_plan(run), target, device, progress)
    own: Precision = target.precision
    asked = settings.quantize.precision
    others = [one for one in EVERY if one != own and asked in (one, AUTO)]
    basis = work.basis
    if warning := resolution_warning(len(basis.expected), settings.quantize.max_drop):
        progress.note(warning)
    if basis.reason:
        progress.note(f"quantize: goes by agreement with the original, since {basis.reason}")
    floor = _floor(basis.score(work.own["original"]), basis.score(work.own["pruned"]), settings)
    made = {precision: work.make(precision, floor) for precision in others}
    measured = work.measured([own, *(precision for precision, how in made.items() if how.kept is not None)])
    shipped, lost = decide(measured, own, floor, basis.measure)
    lost |= {one: NOTHING_LEFT for one in made if one not in measured}
    record = Quantize(
        **vars(basis.record),
        asked=asked,
        own=own,
        shipped=shipped,
        least_score=floor,
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
        raise MissedError(
            f"{asked} is not shipped: {lost[others[0]]}. The pruned network is served in {shipped}.",
            f"All figures are in {run.quantize}. Allow more with [quantize] max_drop, or: --precision auto",
        )
    return record


def decide(
    candidates: Mapping[Precision, Candidate], own: Precision, floor: float, measure: Measure = "accuracy"
) -> tuple[Precision, dict[Precision, str]]:
    """The fastest of ``candidates`` that is shown to be faster than ``own`` and scores at least ``floor``.

    Returns:
        It, or ``own``; and why each of the others lost, half a sentence each.
    """
    lost: dict[Precision, str] = {}
    mine = candidates[own]
    for name, one in candidates.items():
        if name == own:
            continue
        if one.score < floor:
            kept = f"{one.score:.2%}, at least {floor:.2%} is to be kept"
            lost[name] = f"its {MEASURES[measure]} on validation images is {kept}"
        elif one.ratio_ci95[1] >= mine.ratio_ci95[0]:
            lost[name] = f"it takes {one.ratio / mine.ratio:.2f} of the time that {own} takes"
    left = [name for name in candidates if name != own and name not in lost]
    best = min(left, key=lambda name: candidates[name].ratio, default=own)
    for name in [*left, own]:
        if name != best:
            lost[name] = f"it takes {candidates[name].ratio / candidates[best].ratio:.2f} times as long as {best}"
    return best, lost


def _floor(original: float, pruned: float, settings: Settings) -> float:
    """The score to be kept: of what pruning left, and of the original's where the pruned network keeps that."""
    least = pruned - settings.quantize.max_drop / 100
    allowed = settings.verify.max_drop
    whole = least if allowed is None else original - allowed / 100
    return max(least, whole) if pruned >= whole else least
