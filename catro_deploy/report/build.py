"""The records of a run, combined into one report, which is written in three forms."""

import platform
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from catro_deploy import __version__
from catro_deploy.records import Bench, Build, Finetune, Plan, Quantize, Runtimes, Search, Shipped, Variants, Verify
from catro_deploy.records.figures import InputFigures
from catro_deploy.records.report import Report
from catro_deploy.report.agreement import basis_warnings
from catro_deploy.report.budgets import budget_figures
from catro_deploy.report.devices import device_figures
from catro_deploy.report.few import few_image_warnings, interval_of
from catro_deploy.report.figures import (
    agreement_figures,
    class_figures,
    dropped_figures,
    engine_figures,
    group_figures,
    histogram,
    image_figures,
    macs_share,
    mode_figures,
    network_figures,
    verification_figures,
    with_accuracy,
    with_times,
)
from catro_deploy.report.finetuning import kept_words
from catro_deploy.report.grounds import basis
from catro_deploy.report.latency import budget_used, latency_figures
from catro_deploy.report.verdict import verdict

__all__ = ["RunRecords", "build_report"]

PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime", "numpy")
NOT_FINETUNED = "The pruned network was not fine-tuned: all figures are of the network right after pruning."
NOT_FINETUNED_NOR_VERIFIED = "The pruned network was not fine-tuned, and its accuracy was not measured."
# The fields of a report for which nothing was measured.
NOT_MEASURED: dict[str, Any] = {
    "verdict": "",
    "measured": "",
    "warnings": (),
    "modes": (),
    "per_class": (),
    "labelled": True,
    "speedup": None,
    "trtexec": None,
    "benchmark_app": None,
    "energy": None,
    "accuracy_drop_points": None,
    "agreement": None,
    "recovery": None,
    "validation_accuracy": None,
    "validation_accuracy_ci95": None,
    "original_validation_accuracy": None,
    "finetune": None,
    "verification": None,
    "protocol": None,
    "latency_histogram": None,
}


@dataclass(frozen=True)
class RunRecords:
    """The records of the stages of a run.

    Attributes:
        name: the run's name.
        verify, bench: None if the target cannot be reached, so that nothing was measured.
        finetune: None if the pruned network was not fine-tuned.
        search: None if the budget was given and not searched.
        variants: None if only one variant was pruned.
        variant_taken: the number of the variant that was taken, from 1.
        build: None if the runtime needs no engines.
        runtimes: None if no comparison of runtimes was requested.
        quantize: None if the target's own precision is served by default.
        shipped: None if there is no network to ship yet.
        unchecked: what was not checked because the target could not be reached; empty if everything was checked.
    """

    name: str
    plan: Plan
    verify: Verify | None = None
    bench: Bench | None = None
    finetune: Finetune | None = None
    search: Search | None = None
    variants: Variants | None = None
    variant_taken: int = 1
    build: Build | None = None
    runtimes: Runtimes | None = None
    quantize: Quantize | None = None
    shipped: Shipped | None = None
    unchecked: str = ""


def build_report(run: RunRecords) -> Report:
    """Combine the records of a run."""
    report = _planned(run)
    if run.verify:
        report = _with_verify(report, run.verify)
    if run.bench:
        report = _with_bench(report, run.bench)
    if run.finetune:
        report = _with_finetune(report, run.finetune)
    report = replace(report, warnings=_warnings(run))
    return replace(report, measured=basis(report), verdict=verdict(report))


def _planned(run: RunRecords) -> Report:
    """The report of a plan and the optional records, without measurements."""
    plan = run.plan
    return Report(
        **NOT_MEASURED,
        name=run.name,
        target=plan.target,
        model=plan.model,
        classes=plan.classes,
        class_indices=plan.class_indices,
        model_classes=plan.model_classes,
        input=InputFigures(plan.input_shape, "NCHW", plan.mean, plan.std, plan.resized_to),
        budget=plan.budget,
        macs_share=macs_share(plan),
        settings={"criterion": plan.criterion, "allocation": plan.allocation} | plan.settings,
        images=image_figures(plan),
        budget_used=budget_used(plan, run.bench),
        budgets=budget_figures(plan, run.bench, run.shipped),
        devices=device_figures(plan, run.bench, run.verify),
        original=network_figures(plan.original_macs, plan.original_params),
        pruned=network_figures(plan.pruned_macs, plan.pruned_params),
        runtimes=run.runtimes,
        quantize=run.quantize,
        ship=run.shipped,
        unchecked=run.unchecked,
        engines=engine_figures(run.build) if run.build else {},
        reconstruction=plan.reconstruction,
        groups=tuple(map(group_figures, plan.groups)),
        search_path=plan.search_path,
        dropped=dropped_figures(plan),
        latency_plan=latency_figures(plan),
        search=run.search,
        variants=run.variants,
        variant_taken=run.variant_taken,
        environment={"target": plan.target, "how": "not measured"},
        versions=_versions(),
    )


def _with_verify(report: Report, verify: Verify) -> Report:
    original, pruned = verify.original.runtime, verify.pruned.runtime
    drop = None if original is None or pruned is None else round((original - pruned) * 100, 9)
    return replace(
        report,
        original=with_accuracy(report.original, original, verify.test_images),
        pruned=with_accuracy(report.pruned, pruned, verify.test_images),
        labelled=verify.labelled,
        accuracy_drop_points=drop,
        agreement=agreement_figures(verify),
        recovery=verify.recovery,
        per_class=class_figures(verify),
        verification=verification_figures(verify),
    )


def _with_bench(report: Report, bench: Bench) -> Report:
    return replace(
        report,
        original=with_times(report.original, bench.original),
        pruned=with_times(report.pruned, bench.pruned),
        speedup=bench.speedup,
        modes=mode_figures(bench),
        trtexec=bench.trtexec,
        benchmark_app=bench.benchmark_app,
        energy=bench.energy,
        protocol=bench.protocol,
        environment=bench.environment,
        latency_histogram=histogram(bench.original.samples_us, bench.pruned.samples_us),
    )


def _with_finetune(report: Report, finetune: Finetune) -> Report:
    return replace(
        report,
        finetune=finetune,
        validation_accuracy=finetune.validation_accuracy,
        validation_accuracy_ci95=interval_of(finetune.validation_accuracy, finetune.validation_images),
        original_validation_accuracy=finetune.original_validation_accuracy,
    )


def _warnings(run: RunRecords) -> tuple[str, ...]:
    """The warnings, without duplicates: from verification, from decisions, and from the measurement."""
    plan, verify, bench, finetune = run.plan, run.verify, run.bench, run.finetune
    choice = finetune.choice if finetune and finetune.discarded else None
    harmed = choice if choice and choice.harmful else None
    found = [
        *filter(None, [run.unchecked]),
        *(plan.first_look.warnings if plan.first_look else ()),
        *((*verify.problems, *verify.warnings) if verify else ()),
        *(_not_shipped(run.quantize, plan) if run.quantize else ()),
        *([kept_words(harmed)] if harmed else ()),
        *basis_warnings(verify, run.search, run.quantize),
        *few_image_warnings(verify),
        *(plan.latency.warnings if plan.latency else ()),
        *(bench.warnings if bench else ()),
        *(f"{name}: {one}" for name, other in (bench.also if bench else {}).items() for one in other.warnings),
        *(() if finetune else (NOT_FINETUNED if verify else NOT_FINETUNED_NOR_VERIFIED,)),
    ]
    return tuple(dict.fromkeys(found))


def _not_shipped(quantize: Quantize, plan: Plan) -> list[str]:
    """A warning if the requested precision is not served, and the remarks from calibration."""
    remarks = [remark for how in quantize.made.values() for remark in how.remarks]
    reasons = [reason for precision, reason in quantize.lost.items() if precision == quantize.asked]
    timed = (
        f" The widths were chosen by times in {quantize.asked}, so the prediction is of that; prune again with "
        f"--precision {quantize.shipped} to use the whole budget."
    )
    after = timed if plan.latency else ""
    return [*(f"{quantize.asked} was requested and is not served: {reason}.{after}" for reason in reasons), *remarks]


def _versions() -> dict[str, str]:
    """Package versions on the machine that writes the report; packages that are not installed are left out."""
    found = {"catro-deploy": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
