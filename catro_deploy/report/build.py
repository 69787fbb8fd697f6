"""The records of a run, joined into the one dictionary that every form of the report is made from."""

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from catro_deploy import __version__
from catro_deploy.records import Budget, GroupPlan, Plan
from catro_deploy.report.wording import verdict

__all__ = ["build_report"]

BINS = 120
PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime", "numpy")
NOT_FINETUNED = "The pruned network was not fine-tuned: its accuracy is that right after pruning."
MEASURED = (
    "Latencies were measured on the device named under environment, accuracies on the test images with the "
    "runtime named under verification. Multiply-accumulates (MACs) and parameters were counted from the "
    "layers' shapes. No figure here is estimated."
)


def build_report(
    plan: Plan,
    verify: Mapping[str, Any],
    bench: Mapping[str, Any],
    finetune: Mapping[str, Any] | None,
    name: str,
) -> dict[str, Any]:
    """Join what a run recorded.

    Args:
        verify, bench: verify.json (accuracies as fractions), bench.json (microseconds of one call).
        finetune: finetune.json, or None if the pruned network was not fine-tuned.
        name: the run's name.

    Returns:
        What report.json holds: accuracies are fractions, latencies milliseconds, drops percentage points.
    """
    before, after = verify["original"]["runtime"], verify["pruned"]["runtime"]
    report = {
        "format": 1,
        "name": name,
        "verdict": "",
        **_asked(plan),
        "original": _network(before, plan.original_macs, plan.original_params, bench["original"]),
        "pruned": _network(after, plan.pruned_macs, plan.pruned_params, bench["pruned"]),
        "speedup": {"median": bench["speedup"]["median"], "ci95": list(bench["speedup"]["ci95"])},
        "accuracy_drop_points": round((before - after) * 100, 9),
        "per_class": _per_class(verify),
        "groups": [_group(group) for group in plan.groups],
        "finetune": dict(finetune) if finetune else None,
        "verification": _verification(verify),
        "warnings": [*verify["problems"], *bench["warnings"], *([] if finetune else [NOT_FINETUNED])],
        "measured": MEASURED,
        "protocol": dict(bench["protocol"]),
        "environment": dict(bench["environment"]),
        "versions": _versions(),
        "latency_histogram": _histogram(bench["original"]["samples_us"], bench["pruned"]["samples_us"]),
    }
    return report | {"verdict": verdict(report)}


def _asked(plan: Plan) -> dict[str, Any]:
    """What was to be pruned, for what, and how."""
    shape, mean, std = list(plan.input_shape), list(plan.mean), list(plan.std)
    return {
        "target": plan.target,
        "model": plan.model,
        "classes": list(plan.classes),
        "class_indices": list(plan.class_indices),
        "model_classes": plan.model_classes,
        "input": {"shape": shape, "layout": "NCHW", "mean": mean, "std": std},
        "budget": plan.budget,
        "macs_share": {
            "used": plan.pruned_macs / plan.original_macs,
            "budget": Budget.parse(plan.budget).fraction,
        },
        "settings": {"criterion": plan.criterion, "allocation": plan.allocation} | plan.settings,
    }


def _network(accuracy: float, macs: int, params: int, timing: Mapping[str, Any]) -> dict[str, Any]:
    latency = {key: timing[f"{key}_us"] / 1000 for key in ("p50", "p90", "p99", "mean")}
    return {
        "accuracy": accuracy,
        "macs": macs,
        "params": params,
        "latency_ms": latency,
        "latency_cv": timing["cv"],
        "calls": timing["n"],
    }


def _per_class(verify: Mapping[str, Any]) -> list[dict[str, Any]]:
    pairs = zip(verify["original"]["per_class"], verify["pruned"]["per_class"], strict=True)
    return [
        {"name": o["name"], "images": o["images"], "original": o["runtime"], "pruned": p["runtime"]} for o, p in pairs
    ]


def _group(group: GroupPlan) -> dict[str, Any]:
    return {
        "name": group.name,
        "layers": list(group.producers),
        "width_before": group.width,
        "width_after": len(group.kept),
        "trace_ratio": group.trace_ratio,
        "rounds": group.rounds,
        "fixed": group.fixed,
    }


def _verification(verify: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("passed", "problems", "test_images", "runtime", "tolerance", "max_drop")
    agreement = {
        name: {key: verify[name][key] for key in ("torch", "runtime", "agreement", "largest_logit_difference")}
        for name in ("original", "pruned")
    }
    return {key: verify[key] for key in kept} | agreement


def _versions() -> dict[str, str]:
    """What is installed where the report is written; a package that is not there is left out."""
    found = {"catro-deploy": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _histogram(original_us: Sequence[float], pruned_us: Sequence[float]) -> dict[str, Any]:
    """Counts over one common axis, that leaves the slowest 0.5% of each out so that the rest can be seen."""
    ordered = [sorted(original_us), sorted(pruned_us)]
    low = min(samples[0] for samples in ordered)
    high = max(samples[min(len(samples) - 1, int(len(samples) * 0.995))] for samples in ordered)
    margin = (high - low) * 0.03 or low * 0.05
    low, high = max(0.0, low - margin), high + margin
    if low < high * 0.4:
        low = 0.0
    counts = [_counts(samples, low, high) for samples in ordered]
    return {
        "low_ms": low / 1000,
        "high_ms": high / 1000,
        "original": counts[0],
        "pruned": counts[1],
        "beyond": {"original": len(ordered[0]) - sum(counts[0]), "pruned": len(ordered[1]) - sum(counts[1])},
    }


def _counts(samples: Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * BINS
    for sample in samples:
        if sample < high:
            counts[int((sample - low) / (high - low) * BINS)] += 1
    return counts
