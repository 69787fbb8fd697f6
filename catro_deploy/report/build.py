"""The records of a run, joined into the report that its three forms are made from."""

import platform
from dataclasses import dataclass, replace
from importlib import metadata

from catro_deploy import __version__
from catro_deploy.records import (
    Bench,
    Build,
    Finetune,
    Plan,
    Quantize,
    Search,
    Shipped,
    Verify,
)
from catro_deploy.records.figures import (
    InputFigures,
)
from catro_deploy.records.report import Report
from catro_deploy.report.agreement import basis_warnings
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
)
from catro_deploy.report.finetuning import kept_words
from catro_deploy.report.grounds import basis
from catro_deploy.report.latency import budget_used, latency_figures
from catro_deploy.report.verdict import verdict

__all__ = ["RunRecords", "build_report"]

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
        macs_share=macs_share(plan),
        settings={"criterion": plan.criterion, "allocation": plan.allocation} | plan.settings,
        images=image_figures(plan),
        budget_used=budget_used(plan, bench),
        original=network_figures(
            plan.original_macs,
            plan.original_params,
            verify.original.runtime if verify else None,
            verify.test_images if verify else 0,
            bench.original if bench else None,
        ),
        pruned=network_figures(
            plan.pruned_macs,
            plan.pruned_params,
            verify.pruned.runtime if verify else None,
            verify.test_images if verify else 0,
            bench.pruned if bench else None,
        ),
        speedup=bench.speedup if bench else None,
        modes=mode_figures(bench) if bench else (),
        trtexec=bench.trtexec if bench else None,
        energy=bench.energy if bench else None,
        quantize=run.quantize,
        ship=run.shipped,
        unchecked=run.unchecked,
        engines=engine_figures(run.build) if run.build else {},
        labelled=verify.labelled if verify else True,
        accuracy_drop_points=_drop_points(verify),
        agreement=agreement_figures(verify) if verify else None,
        recovery=verify.recovery if verify else None,
        reconstruction=plan.reconstruction,
        validation_accuracy=finetune.validation_accuracy if finetune else None,
        validation_accuracy_ci95=interval_of(finetune.validation_accuracy, finetune.validation_images)
        if finetune
        else None,
        original_validation_accuracy=finetune.original_validation_accuracy if finetune else None,
        per_class=class_figures(verify) if verify else (),
        groups=tuple(map(group_figures, plan.groups)),
        search_path=plan.search_path,
        dropped=dropped_figures(plan),
        latency_plan=latency_figures(plan),
        search=run.search,
        finetune=finetune,
        verification=verification_figures(verify) if verify else None,
        warnings=_warnings(run),
        protocol=bench.protocol if bench else None,
        environment=bench.environment if bench else {"target": plan.target, "how": "not measured"},
        versions=_versions(),
        latency_histogram=histogram(bench.original.samples_us, bench.pruned.samples_us) if bench else None,
    )
    return replace(report, measured=basis(report), verdict=verdict(report))


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


def _versions() -> dict[str, str]:
    """What is installed where the report is written; a package that is not there is left out."""
    found = {"catro-deploy": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
