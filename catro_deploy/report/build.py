"""The records of a run, joined into the one dictionary that every form of the report is made from."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from itertools import takewhile
from typing import Any

from catro_deploy import __version__
from catro_deploy.records import Budget, GroupPlan, Plan
from catro_deploy.report.agreement import basis_warnings
from catro_deploy.report.engines import engine_records, mode_records
from catro_deploy.report.grounds import basis
from catro_deploy.report.images import accuracy_words, images_words
from catro_deploy.report.latency import budget_used, latency_record
from catro_deploy.report.verdict import verdict

__all__ = ["build_report"]

BINS = 120
PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime", "numpy")
NOT_FINETUNED = "The pruned network was not fine-tuned: all figures are of what pruning left."
NOT_FINETUNED_NOR_VERIFIED = "The pruned network was not fine-tuned, and its accuracy was not measured."


def build_report(
    plan: Plan,
    verify: Mapping[str, Any] | None,
    bench: Mapping[str, Any] | None,
    finetune: Mapping[str, Any] | None,
    name: str,
    search: Mapping[str, Any] | None = None,
    build: Mapping[str, Any] | None = None,
    quantize: Mapping[str, Any] | None = None,
    shipped: Mapping[str, Any] | None = None,
    unchecked: str = "",
) -> dict[str, Any]:
    """Join what a run recorded.

    Args:
        verify, bench: verify.json (accuracies as fractions), bench.json (microseconds of one call); None where the
            target cannot be reached, so that nobody measured.
        finetune: finetune.json, or None if the pruned network was not fine-tuned.
        name: the run's name.
        search: search.json, or None if the budget was named and not searched.
        build: build.json, or None where the runtime needs no engines.
        quantize: quantize.json, or None if the target's own precision is served unasked.
        shipped: model.json of the network to ship, or None if there is none yet.
        unchecked: what was not checked, because the target could not be reached; empty if all was.

    Returns:
        What report.json holds: accuracies and agreements are fractions, latencies milliseconds (microseconds where a
        name ends in ``_us``, and where a budget counts them), drops percentage points. What was not measured is None or
        empty.
    """
    report = {
        "format": 1,
        "name": name,
        "verdict": "",
        **_asked(plan),
        "images": _images(plan),
        "budget_used": budget_used(plan, bench),
        "original": _network("original", plan.original_macs, plan.original_params, verify, bench),
        "pruned": _network("pruned", plan.pruned_macs, plan.pruned_params, verify, bench),
        "speedup": {"median": bench["speedup"]["median"], "ci95": list(bench["speedup"]["ci95"])} if bench else None,
        "modes": mode_records(bench) if bench else [],
        "trtexec": (bench or {}).get("trtexec"),
        "energy": (bench or {}).get("energy"),
        "quantize": dict(quantize) if quantize else None,
        "ship": dict(shipped) if shipped else None,
        "unchecked": unchecked,
        "engines": engine_records(build) if build else {},
        "labelled": verify.get("labelled", True) if verify else True,
        "accuracy_drop_points": _drop_points(verify),
        "agreement": (verify or {}).get("agreement_with_original"),
        "recovery": (verify or {}).get("recovery"),
        "reconstruction": asdict(plan.reconstruction) if plan.reconstruction else None,
        "validation_accuracy": finetune["validation_accuracy"] if finetune else None,
        "original_validation_accuracy": (finetune or {}).get("original_validation_accuracy"),
        "per_class": _per_class(verify) if verify else [],
        "groups": _groups(plan),
        "search_path": [list(step) for step in plan.search_path],
        "dropped": _dropped(plan),
        "latency_plan": latency_record(plan),
        "search": dict(search) if search else None,
        "finetune": dict(finetune) if finetune else None,
        "verification": _verification(verify) if verify else None,
        "warnings": [*filter(None, [unchecked]), *_warnings(plan, verify, bench, finetune, search, quantize)],
        "protocol": dict(bench["protocol"]) if bench else {},
        "environment": dict(bench["environment"]) if bench else {"target": plan.target, "how": "not measured"},
        "versions": _versions(),
        "latency_histogram": _histogram(bench["original"]["samples_us"], bench["pruned"]["samples_us"])
        if bench
        else None,
    }
    return report | {"measured": basis(report), "verdict": verdict(report)}


def _asked(plan: Plan) -> dict[str, Any]:
    """What was to be pruned, for what, and how."""
    shape, mean, std = list(plan.input_shape), list(plan.mean), list(plan.std)
    budget = Budget.parse(plan.budget)
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
            "budget": budget.amount if budget.unit == "flops" else None,
        },
        "settings": {"criterion": plan.criterion, "allocation": plan.allocation} | plan.settings,
    }


def _images(plan: Plan) -> dict[str, Any]:
    """The size of the images, and how the original did on those for validation before anything was pruned."""
    _, height, width = plan.input_shape
    look = plan.first_look
    return {
        "size": images_words(look.sizes if look else None, width, height),
        "original": accuracy_words(look) if look else None,
        "first_look": asdict(look) if look else None,
    }


def _network(
    name: str, macs: int, params: int, verify: Mapping[str, Any] | None, bench: Mapping[str, Any] | None
) -> dict[str, Any]:
    timing = bench[name] if bench else None
    return {
        "accuracy": verify[name]["runtime"] if verify else None,
        "macs": macs,
        "params": params,
        "latency_ms": {key: timing[f"{key}_us"] / 1000 for key in ("p50", "p90", "p99", "mean")} if timing else None,
        "latency_cv": timing["cv"] if timing else None,
        "calls": timing["n"] if timing else None,
    }


def _drop_points(verify: Mapping[str, Any] | None) -> float | None:
    if verify is None or not verify.get("labelled", True):
        return None
    before, after = (float(verify[name]["runtime"]) for name in ("original", "pruned"))
    return round((before - after) * 100, 9)


def _warnings(
    plan: Plan,
    verify: Mapping[str, Any] | None,
    bench: Mapping[str, Any] | None,
    finetune: Mapping[str, Any] | None,
    search: Mapping[str, Any] | None,
    quantize: Mapping[str, Any] | None,
) -> list[str]:
    """What to read first, each once: what verification found, how it was chosen, and how it was measured."""
    found = [
        *(plan.first_look.warnings if plan.first_look else ()),
        *(verify["problems"] if verify else ()),
        *_not_shipped(quantize),
        *basis_warnings(verify, search, quantize),
        *(plan.latency.warnings if plan.latency else ()),
        *(bench["warnings"] if bench else ()),
        *(() if finetune else (NOT_FINETUNED if verify else NOT_FINETUNED_NOR_VERIFIED,)),
    ]
    return list(dict.fromkeys(found))


def _not_shipped(quantize: Mapping[str, Any] | None) -> list[str]:
    """That a precision which was asked for by name is not served, and what its calibration showed."""
    if quantize is None:
        return []
    remarks = [remark for how in quantize["made"].values() for remark in how.get("remarks", ())]
    asked, shipped = quantize["asked"], quantize["shipped"]
    if asked in ("auto", shipped):
        return remarks
    return [f"{asked} was asked for and is not served: {quantize['lost'][asked]}.", *remarks]


def _dropped(plan: Plan) -> dict[str, list[str]]:
    """Residual branches that are gone, and the layers that went with them."""
    by_layer = plan.latency.by_layer if plan.latency else {}
    layers = [name for name, (_, after_us) in by_layer.items() if after_us == 0] or list(plan.dropped)
    return {"branches": list(plan.dropped), "layers": layers if plan.dropped else []}


def _per_class(verify: Mapping[str, Any]) -> list[dict[str, Any]]:
    pairs = zip(verify["original"]["per_class"], verify["pruned"]["per_class"], strict=True)
    return [
        {"name": o["name"], "images": o["images"], "original": o["runtime"], "pruned": p["runtime"]} for o, p in pairs
    ]


def _groups(plan: Plan) -> list[dict[str, Any]]:
    """All groups in order; those that are gone, which only their staircases still name, with a width of 0."""
    stairs = plan.latency.staircases if plan.latency else {}
    left, swept = {group.name for group in plan.groups}, list(stairs)
    gone = {
        name: _group(GroupPlan(name, stairs[name].swept[-1][0], (), (name,)))
        for name in swept
        if name not in left and stairs[name].swept
    }
    found = [gone[name] for name in takewhile(gone.__contains__, swept)]
    for group in plan.groups:
        found.append(_group(group))
        behind = swept[swept.index(group.name) + 1 :] if group.name in stairs else []
        found += [gone[name] for name in takewhile(gone.__contains__, behind)]
    return found


def _group(group: GroupPlan) -> dict[str, Any]:
    return {
        "name": group.name,
        "layers": list(group.producers),
        "width_before": group.width,
        "width_after": len(group.kept),
        "trace_ratio": group.trace_ratio,
        "rounds": group.rounds,
        "fixed": group.fixed,
        "kept": list(group.kept),
    }


def _verification(verify: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("passed", "problems", "test_images", "runtime", "tolerance", "precision", "max_drop")
    agreement = {
        name: {key: verify[name][key] for key in ("torch", "runtime", "agreement", "largest_logit_difference")}
        for name in ("original", "pruned")
    }
    return {key: verify[key] for key in kept if key in verify} | agreement | {"onnxruntime": verify.get("onnxruntime")}


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
    if low < high / 2:  # then half of the latency is seen as half
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
