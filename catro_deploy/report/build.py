"""The records of a run, joined into the report that its three forms are made from."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata

from catro_deploy import __version__
from catro_deploy.records import (
    Accuracy,
    Bench,
    Budget,
    Build,
    Engine,
    Finetune,
    GroupPlan,
    ModeTimes,
    Plan,
    Quantize,
    Samples,
    Search,
    Shipped,
    Times,
    Verify,
)
from catro_deploy.records.figures import (
    AgreementFigures,
    ClassFigures,
    Dropped,
    EngineFigures,
    GroupFigures,
    Histogram,
    Images,
    InputFigures,
    Latency,
    MacsShare,
    Milliseconds,
    ModeFigures,
    NetworkFigures,
    Pair,
    Verification,
    VerifiedNetwork,
)
from catro_deploy.records.report import Report
from catro_deploy.report.agreement import basis_warnings
from catro_deploy.report.few import few_image_warnings, interval_of
from catro_deploy.report.finetuning import kept_words
from catro_deploy.report.grounds import basis
from catro_deploy.report.images import accuracy_words, images_words
from catro_deploy.report.latency import budget_used, latency_figures
from catro_deploy.report.verdict import verdict

__all__ = ["RunRecords", "build_report"]

BINS = 120
PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime", "numpy")
NOT_FINETUNED = "The pruned network was not fine-tuned: all figures are of what pruning left."
NOT_FINETUNED_NOR_VERIFIED = "The pruned network was not fine-tuned, and its accuracy was not measured."


@dataclass(frozen=True)
class RunRecords:
    """What the stages of a run recorded.

    Attributes:
        name: the run's name.
        verify, bench: None where the target cannot be reached, so that nothing was measured.
        finetune: None if the pruned network was not fine-tuned.
        search: None if the budget was given and not searched.
        build: None where the runtime needs no engines.
        quantize: None if the target's own precision is served unasked.
        shipped: None if there is no network to ship yet.
        unchecked: what was not checked, because the target could not be reached; empty if all was.
    """

    name: str
    plan: Plan
    verify: Verify | None = None
    bench: Bench | None = None
    finetune: Finetune | None = None
    search: Search | None = None
    build: Build | None = None
    quantize: Quantize | None = None
    shipped: Shipped | None = None
    unchecked: str = ""


def build_report(run: RunRecords) -> Report:
    """Join what a run recorded."""
    plan, verify, bench, finetune = run.plan, run.verify, run.bench, run.finetune
    report = Report(
        name=run.name,
        verdict="",
        measured="",
        target=plan.target,
        model=plan.model,
        classes=plan.classes,
        class_indices=plan.class_indices,
        model_classes=plan.model_classes,
        input=InputFigures(plan.input_shape, "NCHW", plan.mean, plan.std),
        budget=plan.budget,
        macs_share=_macs_share(plan),
        settings={"criterion": plan.criterion, "allocation": plan.allocation} | plan.settings,
        images=_images(plan),
        budget_used=budget_used(plan, bench),
        original=_network(
            plan.original_macs,
            plan.original_params,
            verify.original.runtime if verify else None,
            verify.test_images if verify else 0,
            bench.original if bench else None,
        ),
        pruned=_network(
            plan.pruned_macs,
            plan.pruned_params,
            verify.pruned.runtime if verify else None,
            verify.test_images if verify else 0,
            bench.pruned if bench else None,
        ),
        speedup=bench.speedup if bench else None,
        modes=_modes(bench) if bench else (),
        trtexec=bench.trtexec if bench else None,
        energy=bench.energy if bench else None,
        quantize=run.quantize,
        ship=run.shipped,
        unchecked=run.unchecked,
        engines=_engines(run.build) if run.build else {},
        labelled=verify.labelled if verify else True,
        accuracy_drop_points=_drop_points(verify),
        agreement=_agreement(verify) if verify else None,
        recovery=verify.recovery if verify else None,
        reconstruction=plan.reconstruction,
        validation_accuracy=finetune.validation_accuracy if finetune else None,
        validation_accuracy_ci95=interval_of(finetune.validation_accuracy, finetune.validation_images)
        if finetune
        else None,
        original_validation_accuracy=finetune.original_validation_accuracy if finetune else None,
        per_class=_per_class(verify) if verify else (),
        groups=tuple(map(_group, plan.groups)),
        search_path=plan.search_path,
        dropped=_dropped(plan),
        latency_plan=latency_figures(plan),
        search=run.search,
        finetune=finetune,
        verification=_verification(verify) if verify else None,
        warnings=_warnings(run),
        protocol=bench.protocol if bench else None,
        environment=bench.environment if bench else {"target": plan.target, "how": "not measured"},
        versions=_versions(),
        latency_histogram=_histogram(bench.original.samples_us, bench.pruned.samples_us) if bench else None,
    )
    return replace(report, measured=basis(report), verdict=verdict(report))


def _macs_share(plan: Plan) -> MacsShare:
    budget = Budget.parse(plan.budget)
    return MacsShare(plan.pruned_macs / plan.original_macs, budget.amount if budget.unit == "flops" else None)


def _images(plan: Plan) -> Images:
    """The size of the images, and the original's accuracy on those for validation before anything was pruned."""
    _, height, width = plan.input_shape
    look = plan.first_look
    return Images(
        images_words(look.sizes if look else None, width, height), accuracy_words(look) if look else None, look
    )


def _network(macs: int, params: int, accuracy: float | None, images: int, times: Samples | None) -> NetworkFigures:
    return NetworkFigures(
        accuracy=accuracy,
        accuracy_ci95=interval_of(accuracy, images),
        macs=macs,
        params=params,
        latency_ms=Latency(**vars(_milliseconds(times)), mean=times.mean_us / 1000) if times else None,
        latency_cv=times.cv if times else None,
        calls=times.n if times else None,
    )


def _milliseconds(times: Times) -> Milliseconds:
    return Milliseconds(times.p50_us / 1000, times.p90_us / 1000, times.p99_us / 1000)


def _modes(bench: Bench) -> tuple[ModeFigures, ...]:
    """All modes, the one that counts first; none if there is but one."""
    if not bench.further:
        return ()
    return tuple(
        ModeFigures(one.mode, _milliseconds(one.original), _milliseconds(one.pruned), one.speedup)
        for one in (ModeTimes(bench.original, bench.pruned, bench.speedup, bench.mode, bench.warnings), *bench.further)
    )


def _engines(build: Build) -> dict[str, EngineFigures]:
    return {name: _engine(engine) for name, engine in (("original", build.original), ("pruned", build.pruned))}


def _engine(engine: Engine) -> EngineFigures:
    return EngineFigures(
        seconds=engine.seconds,
        engine_sha256=engine.engine_sha256,
        place=engine.place,
        settings=engine.settings,
        rebuilds_us=engine.rebuilds_us,
        layers=engine.layer_count,
        spread=engine.spread,
    )


def _agreement(verify: Verify) -> AgreementFigures:
    found = verify.agreement_with_original
    return AgreementFigures(**vars(found), ci95=interval_of(found.share, verify.test_images))


def _drop_points(verify: Verify | None) -> float | None:
    if verify is None or verify.original.runtime is None or verify.pruned.runtime is None:
        return None
    return round((verify.original.runtime - verify.pruned.runtime) * 100, 9)


def _warnings(run: RunRecords) -> tuple[str, ...]:
    """What to read first, each once: what verification found, how it was chosen, and how it was measured."""
    plan, verify, bench, finetune = run.plan, run.verify, run.bench, run.finetune
    choice = finetune.choice if finetune and finetune.discarded else None
    harmed = choice if choice and choice.harmful else None
    found = [
        *filter(None, [run.unchecked]),
        *(plan.first_look.warnings if plan.first_look else ()),
        *(verify.problems if verify else ()),
        *(_not_shipped(run.quantize) if run.quantize else ()),
        *([kept_words(harmed)] if harmed else ()),
        *basis_warnings(verify, run.search, run.quantize),
        *few_image_warnings(verify),
        *(plan.latency.warnings if plan.latency else ()),
        *(bench.warnings if bench else ()),
        *(() if finetune else (NOT_FINETUNED if verify else NOT_FINETUNED_NOR_VERIFIED,)),
    ]
    return tuple(dict.fromkeys(found))


def _not_shipped(quantize: Quantize) -> list[str]:
    """That a precision which was asked for by name is not served, and what its calibration showed."""
    remarks = [remark for how in quantize.made.values() for remark in how.remarks]
    reasons = [reason for precision, reason in quantize.lost.items() if precision == quantize.asked]
    return [*(f"{quantize.asked} was asked for and is not served: {reason}." for reason in reasons), *remarks]


def _dropped(plan: Plan) -> Dropped:
    """Residual branches that were removed, and the layers in them."""
    if not plan.dropped:
        return Dropped((), ())
    by_layer = plan.latency.by_layer if plan.latency else {}
    layers = tuple(name for name, (_, after_us) in by_layer.items() if after_us == 0)
    return Dropped(plan.dropped, layers or plan.dropped)


def _per_class(verify: Verify) -> tuple[ClassFigures, ...]:
    pairs = zip(verify.original.per_class, verify.pruned.per_class, strict=True)
    return tuple(ClassFigures(o.name, o.images, o.runtime, p.runtime) for o, p in pairs)


def _group(group: GroupPlan) -> GroupFigures:
    return GroupFigures(
        name=group.name,
        layers=group.producers,
        width_before=group.width,
        width_after=len(group.kept),
        trace_ratio=group.trace_ratio,
        rounds=group.rounds,
        fixed=group.fixed,
        kept=group.kept,
    )


def _verification(verify: Verify) -> Verification:
    return Verification(
        passed=verify.passed,
        problems=verify.problems,
        test_images=verify.test_images,
        runtime=verify.runtime,
        tolerance=verify.tolerance,
        precision=verify.precision,
        max_drop=verify.max_drop,
        original=_verified(verify.original),
        pruned=_verified(verify.pruned),
        onnxruntime=verify.onnxruntime,
    )


def _verified(network: Accuracy) -> VerifiedNetwork:
    return VerifiedNetwork(network.torch, network.runtime, network.agreement, network.largest_logit_difference)


def _versions() -> dict[str, str]:
    """What is installed where the report is written; a package that is not there is left out."""
    found = {"catro-deploy": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _histogram(original_us: Sequence[float], pruned_us: Sequence[float]) -> Histogram:
    """Counts over one common axis, that leaves the slowest 0.5% of each out so that the rest can be seen."""
    ordered = [sorted(original_us), sorted(pruned_us)]
    low = min(samples[0] for samples in ordered)
    high = max(samples[min(len(samples) - 1, int(len(samples) * 0.995))] for samples in ordered)
    margin = (high - low) * 0.03 or low * 0.05
    low, high = max(0.0, low - margin), high + margin
    if low < high / 2:  # then half of the latency is seen as half
        low = 0.0
    original, pruned = (_counts(samples, low, high) for samples in ordered)
    beyond = Pair(len(ordered[0]) - sum(original), len(ordered[1]) - sum(pruned))
    return Histogram(low / 1000, high / 1000, original, pruned, beyond)


def _counts(samples: Sequence[float], low: float, high: float) -> tuple[int, ...]:
    counts = [0] * BINS
    for sample in samples:
        if sample < high:
            counts[int((sample - low) / (high - low) * BINS)] += 1
    return tuple(counts)
