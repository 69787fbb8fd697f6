"""``verify``: both networks on the test images, by PyTorch and by the runtime that will serve them.

Their accuracy, where the images have labels, the agreement of the pruned network with the original, and the accuracy
after each step from the cut on.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from catro_deploy import networks
from catro_deploy.agent.jobs import VerifyJob
from catro_deploy.data.base import Subset, is_unlabelled
from catro_deploy.errors import MissedError
from catro_deploy.graph.fx.features import images_at_once
from catro_deploy.progress import Progress
from catro_deploy.records import ByRuntime, OtherRuntime, Plan, Precisions, Recovery, Verdict, Verify
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import save
from catro_deploy.settings import Settings
from catro_deploy.stages.image_files import copies_warning
from catro_deploy.stages.images import wanted_test_images
from catro_deploy.stages.logits import (
    dataset_of,
    log_probabilities,
    logits_by_torch,
    logits_errand,
    logits_on_device,
    packed,
)
from catro_deploy.stages.recovery import Intermediates
from catro_deploy.stages.served import served_models, served_precisions
from catro_deploy.stages.verdict import compare, compare_with_original, tuning_advice, verdict_on
from catro_deploy.statistics.agreement import largest_finite
from catro_deploy.targets import Precision, Target, load_target
from catro_deploy.transports import device_of
from catro_deploy.transports.bundle import Errand
from catro_deploy.transports.execution import Use, use_of
from catro_deploy.transports.reach import require_reachable
from catro_deploy.transports.registry import HERE
from catro_deploy.transports.sides import Side, sides_of

__all__ = ["test_images", "verify", "verify_errand"]

Floats = NDArray[np.float32]

ORT = "onnxruntime"
# Of logits: in float32 TOLERANCE or a share of the largest logit; in half precision, with 11 significant bits, a share.
TOLERANCE, TOLERANCE_SHARE, HALF_TOLERANCE_SHARE = 1e-3, 1e-4, 0.03


@dataclass(frozen=True)
class _ByRuntime:
    """Logits (images, classes) of both networks by their names, and the runtime that computed them."""

    logits: Mapping[str, Floats]
    runtime: str


@dataclass(frozen=True)
class _Logits:
    """Both networks' logits for the test images, by PyTorch, the runtime, and ONNX Runtime if that is a different one.

    ``also`` are the logits on further targets, by name.
    """

    by_torch: Mapping[str, Floats]
    served: _ByRuntime
    by_ort: _ByRuntime | None
    recovery: Recovery | None
    also: Mapping[str, _ByRuntime] = field(default_factory=dict)


def verify(settings: Settings, run: RunFolder, progress: Progress) -> Verify:
    """Run both networks of ``run`` on all test images, in PyTorch and in the runtime; write verify.json.

    If the runtime is not ONNX Runtime, or the network is quantised, ONNX Runtime also runs them, on this machine and in
    float32: this distinguishes errors of the device or the quantisation from errors of the export.

    Raises:
        TargetError: networks cannot be run on the target from here.
        RunFolderError, ModelError: the plan, the weights or an ONNX file is missing, corrupt, or stale.
        DataError: the dataset is not the plan's, or a class has no test image.
        MissedError: runtime and PyTorch differ by more than the tolerance, a logit is not finite, or more accuracy
            (without labels: agreement with the original) is lost than ``max_drop`` allows. verify.json is written
            first.
    """
    target, device = load_target(settings.prune.target), device_of(settings.prune.device, run)
    require_reachable(target, device, "verify")
    plan, precisions = load_plan(run), served_precisions(run, settings)
    test = test_images(settings, plan)
    also_by_ort = target.runtime != ORT or precisions["pruned"] != "fp32"
    given = _classify(settings, run, plan, test, progress, also_by_ort=also_by_ort)
    record = _verdict(settings, plan, test.labels, given, precisions)
    also = {side.name: _verdict_also(side, run, plan, test.labels, given) for side in sides_of(settings)[1:]}
    problems = [f"On {name}: {problem}" for name, verdict in also.items() for problem in verdict.problems]
    problems = [*record.problems, *problems]
    warnings = _warnings(settings, plan, progress)
    record = replace(record, also=also, problems=tuple(problems), passed=not problems, warnings=warnings)
    save(record, run)
    if not record.passed:
        allowed = settings.verify.max_drop
        hint = f"All figures are in {run.verify}."
        if allowed is not None and record.lost_points > allowed:
            hint += f" {tuning_advice(settings.finetune.epochs, in_integers=precisions['pruned'] == 'int8')}"
        raise MissedError("\n".join(record.problems), hint)
    return record


def _warnings(settings: Settings, plan: Plan, progress: Progress) -> tuple[str, ...]:
    """What is suspicious about the test images; it is also noted."""
    copies = copies_warning(dataset_of(settings, plan), plan.class_indices, progress)
    if copies:
        progress.note(f"WARNING: {copies}")
    return (copies,) if copies else ()


def _classify(
    settings: Settings, run: RunFolder, plan: Plan, test: Subset, progress: Progress, *, also_by_ort: bool
) -> _Logits:
    """Classify all ``test`` images with both networks, by PyTorch and by the runtimes."""
    device = device_of(settings.prune.device, run)
    models = {"original": networks.load(run, weights="original"), "pruned": networks.load(run, weights="finetuned")}
    at_once = images_at_once(models["original"], plan.input_shape, settings.verify.batch_size)
    between = Intermediates.of(run, plan, models["pruned"], len(test.labels))
    _, *others = sides_of(settings)
    passes = (6 if also_by_ort else 4) + 2 * len(others)
    total = passes * len(test.labels) + (between.steps if between else 0)
    with (
        progress.task("Verifying on the test images", total) as task,
        packed(run, test, plan, settings.verify.batch_size) as images,
    ):
        errand = _errand(settings, run, plan)
        by_torch = logits_by_torch(run, models, images, plan, at_once, task)
        recovery = between.measure(run, images, test.labels, by_torch, plan, at_once, task) if between else None
        served = _ByRuntime(*logits_on_device(run, errand, device, len(plan.classes), task, progress.note))
        also = {}
        for side in others:
            on_side = _errand(side.settings, run, plan)
            found = logits_on_device(run, on_side, side.device, len(plan.classes), task, progress.note)
            also[side.name] = _ByRuntime(*found)
        by_ort = None
        if also_by_ort:
            errand = _by_ort(settings, run, plan)
            by_ort = _ByRuntime(*logits_on_device(run, errand, HERE, len(plan.classes), task, progress.note))
    if settings.export.output == "softmax":
        by_torch = log_probabilities(run, by_torch, at_once)
    return _Logits(by_torch, served, by_ort, recovery, also)


def _verdict(
    settings: Settings, plan: Plan, labels: NDArray[np.int64], given: _Logits, precisions: Mapping[str, Precision]
) -> Verify:
    """The record of the verdict on both networks' logits."""
    target, by_torch = load_target(settings.prune.target), given.by_torch
    tolerance = _tolerance_of(settings, target, by_torch)
    verdict = _compared(settings, plan, labels, by_torch, given.served.logits, precisions, tolerance)
    return Verify(
        **vars(verdict),
        target=target.name,
        classes=plan.classes,
        test_images=len(labels),
        labelled=not is_unlabelled(labels),
        tolerance=tolerance,
        precision=Precisions(**precisions),
        runtime=given.served.runtime,
        recovery=given.recovery,
        onnxruntime=_other_runtime(given.by_ort, by_torch, labels, plan) if given.by_ort else None,
        max_drop=settings.verify.max_drop,
        passed=not verdict.problems,
    )


def _verdict_also(side: Side, run: RunFolder, plan: Plan, labels: NDArray[np.int64], given: _Logits) -> Verdict:
    """The verdict on the logits of a further target."""
    precisions = served_precisions(run, side.settings)
    tolerance = _tolerance_of(side.settings, side.target, given.by_torch)
    logits = given.also[side.name].logits
    return _compared(side.settings, plan, labels, given.by_torch, logits, precisions, tolerance)


def _compared(
    settings: Settings,
    plan: Plan,
    labels: NDArray[np.int64],
    by_torch: Mapping[str, Floats],
    by_runtime: Mapping[str, Floats],
    precisions: Mapping[str, Precision],
    tolerance: float,
) -> Verdict:
    found = {name: compare(by_torch[name], by_runtime[name], labels, plan.classes) for name in by_torch}
    in_integers = [name for name, precision in precisions.items() if precision == "int8"]
    agreement = compare_with_original(by_runtime["original"], by_runtime["pruned"], plan.classes, labels)
    max_drop = settings.verify.max_drop
    return verdict_on(found["original"], found["pruned"], agreement, tolerance, max_drop, in_integers)


def _tolerance_of(settings: Settings, target: Target, by_torch: Mapping[str, Floats]) -> float:
    largest = max(largest_finite(logits) for logits in by_torch.values())
    return settings.verify.tolerance or _tolerance(target.precision, largest)


def test_images(settings: Settings, plan: Plan) -> Subset:
    """The test images of the plan's classes.

    Raises:
        DataError: a class has none.
    """
    return wanted_test_images(dataset_of(settings, plan), plan.class_indices, plan.classes)


@contextmanager
def verify_errand(settings: Settings, run: RunFolder) -> Iterator[Errand[VerifyJob]]:
    """The job that computes the logits of both ONNX files on all test images, which are packed in this context.

    Raises:
        As ``verify``.
    """
    plan = load_plan(run)
    with packed(run, test_images(settings, plan), plan, settings.verify.batch_size):
        yield _errand(settings, run, plan)


def _errand(settings: Settings, run: RunFolder, plan: Plan) -> Errand[VerifyJob]:
    use = use_of(load_target(settings.prune.target), settings)
    models = served_models(run, served_precisions(run, settings))
    return logits_errand("Classifying the test images", settings, run, plan, use, models)


def _by_ort(settings: Settings, run: RunFolder, plan: Plan) -> Errand[VerifyJob]:
    """Like ``_errand``, but for ONNX Runtime, in float32."""
    use = Use(settings.prune.target, ORT, "fp32", threads=1, batch=1)
    models = served_models(run, {"original": "fp32", "pruned": "fp32"})
    return logits_errand("Classifying the test images", settings, run, plan, use, models)


def _other_runtime(
    by_ort: _ByRuntime, by_torch: Mapping[str, Floats], labels: NDArray[np.int64], plan: Plan
) -> OtherRuntime:
    found = {name: compare(by_torch[name], by_ort.logits[name], labels, plan.classes) for name in by_torch}
    both = {name: ByRuntime(of.runtime, of.agreement, of.largest_logit_difference) for name, of in found.items()}
    return OtherRuntime(by_ort.runtime, **both)


def _tolerance(precision: Precision, largest: float) -> float:
    """The default tolerance for logits of at most ``largest``."""
    if precision == "fp32":
        return max(TOLERANCE, TOLERANCE_SHARE * largest)
    return HALF_TOLERANCE_SHARE * largest
