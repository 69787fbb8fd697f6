"""What the stages wrote, as tables on the screen. Every figure comes from a run folder's JSON file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from catro_deploy.report.wording import count, ms, percent, points, ratios
from catro_deploy.runs import RunFolder

__all__ = ["RESULTS", "Result"]

Content = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """Where a stage's result is read, and how it looks on the screen."""

    read: Callable[[RunFolder], dict[str, Any]]
    show: Callable[[Content, RunFolder], Sequence[RenderableType]]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _prune(plan: Content, run: RunFolder) -> Sequence[RenderableType]:
    table = _table("channels of", "before", "after", "")
    for group in plan["groups"]:
        before, after = group["width"], len(group["kept"])
        table.add_row(_producers(group["producers"]), str(before), str(after), group["fixed"] or _share(after, before))
    macs = _before_after("MACs", plan["original_macs"], plan["pruned_macs"])
    parameters = _before_after("parameters", plan["original_params"], plan["pruned_params"])
    return [table, f"{macs}, of which {plan['budget']} may be used; {parameters}"]


def _share(part: float, whole: float) -> str:
    """``part`` as percent of ``whole``, to a tenth of a percent: ``49.8%``."""
    return f"{part / whole:.1%}"


def _producers(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else ", ".join(names)


def _before_after(what: str, before: int, after: int) -> str:
    return f"{what} {count(before)} -> {count(after)} ({_share(after, before)})"


def _finetune(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    minutes, seconds = divmod(round(result["seconds"]), 60)
    line = f"Fine-tuned {len(result['epochs'])} epochs in {minutes}:{seconds:02d} on {result['device']}"
    before, after = result["baseline_validation_accuracy"], result["validation_accuracy"]
    return [f"{line}: validation accuracy {percent(before)} -> {percent(after)}"]


def _export(run: RunFolder) -> dict[str, Any]:
    files = {"original": run.original_onnx, "pruned": run.pruned_onnx}
    return {name: {"file": str(path), "bytes": path.stat().st_size} for name, path in files.items()}


def _show_export(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    return [f"{model['file']} ({count(model['bytes'] / 1024)} KiB)" for model in result.values()]


def _verify(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    table = _table("accuracy", "PyTorch", result["runtime"], "agreement", "largest logit difference")
    for name in ("original", "pruned"):
        of = result[name]
        accuracies = (percent(of["torch"]), percent(of["runtime"]), percent(of["agreement"]))
        difference = of["largest_logit_difference"]
        table.add_row(name, *accuracies, "not finite" if difference is None else f"{difference:.1e}")
    drop = points(-result["accuracy_drop_points"])
    return [table, f"{count(result['test_images'])} test images: {drop} points", *result["problems"]]


def _bench(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    table = _table("latency", "p50 ms", "p90 ms", "p99 ms", "calls")
    for name in ("original", "pruned"):
        of = result[name]
        table.add_row(name, *(ms(of[f"{p}_us"] / 1000) for p in ("p50", "p90", "p99")), count(of["n"]))
    return [table, _speedup(result["speedup"]), *result["warnings"]]


def _speedup(speedup: Content) -> str:
    median, low, high = ratios(speedup["median"], *speedup["ci95"])
    return f"speedup of the median {median}x (95% CI {low} to {high})"


def _report(report: Content, run: RunFolder) -> Sequence[RenderableType]:
    table = _table("", "original", "pruned", "")
    before, after = report["original"], report["pruned"]
    drop = f"{points(-report['accuracy_drop_points'])} points"
    table.add_row("accuracy", percent(before["accuracy"]), percent(after["accuracy"]), drop)
    for name in ("p50", "p90", "p99"):
        pair = [of["latency_ms"][name] for of in (before, after)]
        table.add_row(f"{name} ms", *map(ms, pair), _times(*pair))
    for name, key in (("MACs", "macs"), ("parameters", "params")):
        table.add_row(name, count(before[key]), count(after[key]), _share(after[key], before[key]))
    title = f"{report['target']}, {len(report['classes'])} classes, {report['budget']}"
    return [title, table, *report["warnings"], report["verdict"], f"Report: {run.report('html')}"]


def _times(before: float, after: float) -> str:
    return f"{ratios(before / after)[0]}x"


RESULTS = {
    "prune": Result(lambda run: run.read_json(run.plan, "prune"), _prune),
    "finetune": Result(lambda run: run.read_json(run.finetune, "finetune"), _finetune),
    "export": Result(_export, _show_export),
    "verify": Result(lambda run: run.read_json(run.verify, "verify"), _verify),
    "bench": Result(lambda run: run.read_json(run.bench, "bench"), _bench),
    "report": Result(lambda run: run.read_json(run.report("json"), "report"), _report),
}
