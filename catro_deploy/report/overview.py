"""Key figures of a run folder: for lists of runs, and for two runs side by side."""

import os
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from catro_deploy.errors import RunFolderError
from catro_deploy.records import Bench, Finetune, Plan, Record, Verify
from catro_deploy.records.overview import Overview
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load
from catro_deploy.toml import read_toml

__all__ = ["overview", "settings_of"]

R = TypeVar("R", bound=Record)


def overview(run: RunFolder) -> Overview:
    """The figures of the finished stages of ``run``.

    Raises:
        RunFolderError: a record is damaged.
    """
    finished = run.finished()
    stages = list(finished)

    def ended(stage: str, kind: type[R]) -> R | None:
        return load(kind, run) if stage in finished else None

    settings = settings_of(run)
    found: dict[str, Any] = {
        "name": Path(os.path.abspath(run.path)).name,  # noqa: PTH100 - a link keeps its own name
        "stage": stages[-1] if stages else None,
        "date": finished[stages[-1]] if stages else None,
        "model": settings.get("model", {}).get("name"),
        "target": settings.get("prune", {}).get("target"),
        "budget": settings.get("prune", {}).get("budget"),
    }
    plan, bench = ended("prune", Plan), ended("bench", Bench)
    return Overview(
        **found
        | (_planned(plan) if plan else {})
        | _accuracy(ended("finetune", Finetune), ended("verify", Verify))
        | _latency(plan, bench)
    )


def settings_of(run: RunFolder) -> dict[str, Any]:
    """The settings of ``run`` from its run.toml.

    Raises:
        RunFolderError: the file cannot be read.
    """
    try:
        return read_toml(run.settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunFolderError(f"{run.settings} cannot be read: {error}.", "Was it changed by hand?") from error


def _planned(plan: Plan) -> dict[str, Any]:
    """The pruned network and its size."""
    return {
        "model": plan.model,
        "target": plan.target,
        "budget": plan.budget,
        "model_classes": plan.model_classes,
        "input_shape": plan.input_shape,
        "resized_to": plan.resized_to,
        "classes": plan.classes,
        "original_macs": plan.original_macs,
        "pruned_macs": plan.pruned_macs,
        "original_params": plan.original_params,
        "pruned_params": plan.pruned_params,
    }


def _accuracy(finetune: Finetune | None, verify: Verify | None) -> dict[str, Any]:
    """Accuracies, and whether they are on ``test`` images or, before verification, on ``validation`` images."""
    if verify:
        known = {"test_images": verify.test_images, "agreement": verify.agreement_with_original.share}
        if not verify.labelled:
            return known
        accuracies = {"original_accuracy": verify.original.runtime, "accuracy": verify.pruned.runtime}
        return known | accuracies | {"accuracy_images": "test"}
    if finetune and finetune.validation_accuracy is not None:
        return {"accuracy": finetune.validation_accuracy, "accuracy_images": "validation"}
    return {}


def _latency(plan: Plan | None, bench: Bench | None) -> dict[str, Any]:
    """Medians in microseconds, their ratio, and their origin."""
    if bench:
        before, after = bench.original.p50_us, bench.pruned.p50_us
        how = {"latency_how": "measured", "speedup_ci95": bench.speedup.ci95}
    elif plan and plan.latency:
        before, after = plan.latency.original_us, plan.latency.predicted_us
        how = {"latency_how": "estimate" if plan.latency.how == "estimate" else "predicted"}
    else:
        return {}
    return {"original_us": before, "pruned_us": after, "speedup": before / after} | how
