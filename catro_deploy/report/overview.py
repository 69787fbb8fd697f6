"""What a run folder holds, in a few figures: for lists of runs, and for two runs side by side."""

import tomllib
from collections.abc import Mapping
from typing import Any

from catro_deploy.errors import RunFolderError
from catro_deploy.runs.folder import RunFolder

__all__ = ["overview", "settings_of"]


def overview(run: RunFolder) -> dict[str, Any]:
    """The figures of those stages of ``run`` that ended; what is not known is None.

    Accuracies are fractions, latencies microseconds.

    Raises:
        RunFolderError: a record is damaged.
    """
    finished = run.finished()
    stages = list(finished)
    settings = settings_of(run)
    found: dict[str, Any] = {
        "name": run.path.resolve().name,
        "stage": stages[-1] if stages else None,
        "date": finished[stages[-1]] if stages else None,
        "model": settings.get("model", {}).get("name"),
        "target": settings.get("prune", {}).get("target"),
        "budget": settings.get("prune", {}).get("budget"),
    }
    plan = run.read_json(run.plan, "prune") if "prune" in finished else None
    finetune = run.read_json(run.finetune, "finetune") if "finetune" in finished else None
    verify = run.read_json(run.verify, "verify") if "verify" in finished else None
    bench = run.read_json(run.bench, "bench") if "bench" in finished else None
    return found | _planned(plan) | _accuracy(finetune, verify) | _latency(plan, bench)


def settings_of(run: RunFolder) -> dict[str, Any]:
    """The settings of ``run`` as its run.toml has them.

    Raises:
        RunFolderError: it cannot be read.
    """
    try:
        return tomllib.loads(run.settings.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RunFolderError(f"{run.settings} cannot be read: {error}.", "Was it changed by hand?") from error


def _planned(plan: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was pruned, to which size."""
    same = ("model_classes", "input_shape", "classes", "original_macs", "pruned_macs", "original_params")
    keys = (*same, "pruned_params")
    if plan is None:
        return dict.fromkeys(keys)
    return {key: plan.get(key) for key in ("model", "target", "budget", *keys)}


def _accuracy(finetune: Mapping[str, Any] | None, verify: Mapping[str, Any] | None) -> dict[str, Any]:
    """Accuracies, and whether they are of ``test`` images or, before verification, of ``validation`` images."""
    found: dict[str, Any] = dict.fromkeys(
        ("original_accuracy", "accuracy", "accuracy_images", "test_images", "agreement")
    )
    if verify:
        agreement = verify.get("agreement_with_original")
        found |= {"test_images": verify["test_images"], "agreement": agreement["share"] if agreement else None}
        if verify.get("labelled", True):
            accuracies = {"original_accuracy": verify["original"]["runtime"], "accuracy": verify["pruned"]["runtime"]}
            found |= accuracies | {"accuracy_images": "test"}
    elif finetune and finetune["validation_accuracy"] is not None:
        found |= {"accuracy": finetune["validation_accuracy"], "accuracy_images": "validation"}
    return found


def _latency(plan: Mapping[str, Any] | None, bench: Mapping[str, Any] | None) -> dict[str, Any]:
    """Medians in microseconds and the pruned network's share of the original's, and how they were found."""
    planned = (plan or {}).get("latency")
    how: str | None
    interval: list[float] | None
    if bench:
        before, after = bench["original"]["p50_us"], bench["pruned"]["p50_us"]
        how, interval = "measured", sorted(1 / bound for bound in bench["speedup"]["ci95"])
    elif planned:
        before, after = planned["original_us"], planned["predicted_us"]
        how, interval = "estimate" if planned["how"] == "estimate" else "predicted", None
    else:
        before, after, how, interval = None, None, None, None
    return {
        "original_us": before,
        "pruned_us": after,
        "latency_ratio": after / before if after is not None else None,
        "latency_ratio_ci95": interval,
        "latency_how": how,
    }
