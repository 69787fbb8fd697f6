"""What the stages wrote, as tables on the screen. Every figure comes from a run folder's JSON file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from catro_deploy.report.agreement import validation_heading
from catro_deploy.report.finetuning import kept_words, was_discarded
from catro_deploy.report.front import front_line
from catro_deploy.report.reconstruction import reconstruction_line
from catro_deploy.report.recovery import recovery_line
from catro_deploy.report.shipping import shipping_words
from catro_deploy.report.tables import interval_row
from catro_deploy.report.verdict import OUTCOMES, budget_words, prediction_word
from catro_deploy.report.wording import (
    change_interval,
    count,
    duration,
    ms,
    nats,
    percent,
    points,
    ratios,
    share_interval,
)
from catro_deploy.runs.folder import RunFolder
from catro_deploy.statistics.intervals import wilson

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
    latency, dropped = plan.get("latency"), plan.get("dropped")
    gone = [f"gone: the residual branches that end in {', '.join(dropped)}"] if dropped else []
    solved = [reconstruction_line(plan["reconstruction"])] if plan.get("reconstruction") else []
    if latency is None:
        return [table, *gone, f"{macs}, of which {plan['budget']} may be used; {parameters}", *solved]
    return [table, *gone, f"{macs}; {parameters}", *_latency(latency, plan), *solved]


def _latency(latency: Content, plan: Content) -> Sequence[RenderableType]:
    """How latency decided the widths: the rounds, the cost model, and what came out."""
    shown: list[RenderableType] = [_rounds(latency, plan)] if latency["rounds"] else []
    if errors := latency["errors"]:
        within = f"{errors['within_5']:.1%} within 5%, {errors['within_10']:.1%} within 10%"
        shown.append(
            f"cost model on {errors['networks']} networks held out: {within}, RMSPE {errors['rmspe']:.1%}, "
            f"Spearman {errors['spearman']:.3f}"
        )
    before, after = latency["original_us"], latency["predicted_us"]
    times = f"{duration(before)} -> {duration(after)} ({after / before:.3f}x)"
    outcome = f"latency, {prediction_word(latency)}: {times} for a budget of {plan['budget']}; {latency['source']}"
    return [*shown, *latency["warnings"], outcome]


def _rounds(latency: Content, plan: Content) -> Table:
    kept = {group["name"]: len(group["kept"]) for group in plan["groups"]}
    table = _table("round", "predicted", "measured", "original", "measured ratio", "95% CI", "")
    for number, one in enumerate(latency["rounds"], 1):
        times = [duration(one[key]) for key in ("predicted_us", "measured_us", "original_us")]
        interval = " to ".join(f"{bound:.3f}" for bound in one["ratio_ci95"])
        taken = all(kept.get(name, 0) == width for name, width in one["widths"].items())
        table.add_row(str(number), *times, f"{one['ratio']:.3f}x", interval, "taken" if taken else "")
    return table


def _share(part: float, whole: float) -> str:
    """``part`` as percent of ``whole``, to a tenth of a percent: ``49.8%``."""
    return f"{part / whole:.1%}"


def _producers(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else ", ".join(names)


def _before_after(what: str, before: int, after: int) -> str:
    return f"{what} {count(before)} -> {count(after)} ({_share(after, before)})"


def _finetune(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    if not result["epochs"]:
        return [f"No training: validation accuracy {percent(result['validation_accuracy'])}, as pruned"]
    minutes, seconds = divmod(round(result["seconds"]), 60)
    line = f"Fine-tuned {len(result['epochs'])} epochs in {minutes}:{seconds:02d} on {result['device']}"
    before, after = result["baseline_validation_accuracy"], result["validation_accuracy"]
    if was_discarded(result):
        return [line, kept_words(result["choice"])]
    images = result.get("validation_images")
    interval = f" ({share_interval(wilson(after, images))})" if images and after is not None else ""
    return [f"{line}: validation accuracy {percent(before)} -> {percent(after)}{interval}"]


def _export(run: RunFolder) -> dict[str, Any]:
    files = {"original": run.original_onnx, "pruned": run.pruned_onnx}
    halves = (run.onnx("original", "fp16"), run.onnx("pruned", "fp16"))
    files |= {path.name.removesuffix(".onnx"): path for path in halves if path.is_file()}
    return {name: {"file": str(path), "bytes": path.stat().st_size} for name, path in files.items()}


def _show_export(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    return [f"{model['file']} ({count(model['bytes'] / 1024)} KiB)" for model in result.values()]


def _precisions(result: Content) -> Table:
    """What was tried, the fastest first, and why the others lost."""
    table = _table("precision", validation_heading(result).lower(), "p50", "of the original", "")
    for name, one in sorted(result["candidates"].items(), key=lambda item: item[1]["ratio"]):
        outcome = "served" if name == result["shipped"] else one["lost"]
        table.add_row(name, percent(one["score"]), duration(one["us"]), f"{one['ratio']:.3f}x", outcome)
    for name in result["lost"].keys() - result["candidates"].keys():
        table.add_row(name, "", "", "", result["lost"][name])
    return table


def _quantize(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    made = result["made"].get("int8") or {}
    kept, qat = made.get("kept"), made.get("qat")
    stay = [f"in floating point stay {', '.join(kept)}"] if kept else []
    if qat:
        last = qat["history"]["validation_accuracy"]
        reached = "" if last is None else f" to {percent(last)} on validation images"
        stay.append(f"fine-tuned for integers{reached}: {'used' if qat['used'] else 'no better, not used'}")
    return [_precisions(result), *stay, f"served: {run.onnx('pruned', result['shipped'])}"]


def _build(build: Content, run: RunFolder) -> Sequence[RenderableType]:
    table = _table("TensorRT engine", "built in", "layers", "rebuilds, median", "copy here")
    for name, engine in build.items():
        layers = len(engine["layers"].get("Layers", ()))
        rebuilds = ", ".join(duration(us) for us in engine["rebuilds_us"]) or "none"
        copy = run.engine(name) if run.engine(name).is_file() else "it stays on the device"
        table.add_row(name, f"{engine['seconds']:.0f} s", str(layers), rebuilds, str(copy))
    place = next(iter(build.values()))["place"]
    where = f"{place['gpu']} ({place['sms']} SMs), TensorRT {place['tensorrt']}"
    return [table, f"They run on this device only: {where}"]


def _verify(result: Content, run: RunFolder) -> Sequence[RenderableType]:
    images = f"{count(result['test_images'])} test images"
    if not result.get("labelled", True):
        found = f"{images} without labels: {_agreement(result)}"
        return [_runtime_table(result), found, *filter(None, [recovery_line(result)]), *result["problems"]]
    table = _table("accuracy", "PyTorch", result["runtime"], "agreement", "largest logit difference")
    for name in ("original", "pruned"):
        of = result[name]
        accuracies = (percent(of["torch"]), percent(of["runtime"]), percent(of["agreement"]))
        table.add_row(name, *accuracies, _difference(of))
    if beside := result.get("onnxruntime"):
        for name in ("original", "pruned"):
            of = beside[name]
            cells = ("", percent(of["accuracy"]), percent(of["agreement"]), _difference(of))
            table.add_row(f"{name}, {beside['runtime']} here", *cells)
    drop = f"{points(-result['accuracy_drop_points'])} points{_change(result)}"
    agreement = [f"{images}: {_agreement(result)}"] if "agreement_with_original" in result else []
    return [table, f"{images}: {drop}", *agreement, *filter(None, [recovery_line(result)]), *result["problems"]]


def _change(result: Content) -> str:
    """The interval of the change of accuracy, where that was recorded."""
    changed = (result.get("agreement_with_original") or {}).get("accuracy_change_ci95")
    return f" ({change_interval(changed)})" if changed else ""


def _runtime_table(result: Content) -> Table:
    """How PyTorch and the runtime agree, without accuracies."""
    table = _table(f"PyTorch and {result['runtime']}", "agreement", "largest logit difference")
    for name in ("original", "pruned"):
        table.add_row(name, percent(result[name]["agreement"]), _difference(result[name]))
    return table


def _agreement(result: Content) -> str:
    found = result["agreement_with_original"]
    same = percent(found["share"])
    return f"the pruned network gives the original's answer to {same}, mean KL {nats(found['mean_kl_nats'])}"


def _difference(of: Content) -> str:
    difference = of["largest_logit_difference"]
    return "not finite" if difference is None else f"{difference:.1e}"


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
    if precision := (report.get("verification") or {}).get("precision"):
        table.add_row("precision", precision["original"], precision["pruned"], "")
    table.add_row(*_accuracy(report))
    if before.get("accuracy_ci95"):
        name, *intervals = interval_row(report)
        table.add_row(name.lower().replace("ci", "CI"), *intervals)
    for name in ("p50", "p90", "p99") if before["latency_ms"] else ():
        pair = [of["latency_ms"][name] for of in (before, after)]
        table.add_row(f"{name} ms", *map(ms, pair), _times(*pair))
    latency = report.get("latency_plan")
    if latency and not before["latency_ms"]:
        pair = [latency["original_us"], latency["predicted_us"]]
        table.add_row(f"latency, {prediction_word(latency)}", *map(duration, pair), _times(*pair))
    for name, key in (("MACs", "macs"), ("parameters", "params")):
        table.add_row(name, count(before[key]), count(after[key]), _share(after[key], before[key]))
    title = f"{report['target']}, {len(report['classes'])} classes, {report['budget']}"
    searched = [front_line(report["search"])] if report.get("search") else []
    steps = filter(None, [recovery_line(report)])
    unchecked = report.get("unchecked")
    warnings = [warning for warning in report["warnings"] if warning != unchecked]
    outcome = [*steps, *searched, *_budget(report), *warnings, report["verdict"], f"Report: {run.report('html')}"]
    tried = [_precisions(report["quantize"])] if report.get("quantize") else []
    last = [*filter(None, [unchecked]), *(_show_ship(report["ship"], run) if report.get("ship") else ())]
    return [title, table, *tried, *outcome, *last]


def _show_ship(shipped: Content, run: RunFolder) -> Sequence[RenderableType]:
    return [f"{name}: {text}" for name, text in shipping_words(shipped, str(run.shipped.parent))]


def _accuracy(report: Content) -> tuple[str, str, str, str]:
    if not report.get("labelled", True):
        return "same answer as the original", "", percent(report["agreement"]["share"]), "not an accuracy"
    before, after = (report[name]["accuracy"] for name in ("original", "pruned"))
    if after is not None:
        return "accuracy", percent(before), percent(after), f"{points(-report['accuracy_drop_points'])} points"
    found, original = report["validation_accuracy"], report.get("original_validation_accuracy")
    if found is None:
        return "accuracy", "", "not measured", ""
    name = "validation accuracy, by PyTorch"
    if original is None:
        return name, "", percent(found), ""
    return name, percent(original), percent(found), f"{points((found - original) * 100)} points"


def _budget(report: Content) -> Sequence[str]:
    """The budget in its own unit, if that is latency and somebody measured it."""
    used = report.get("budget_used")
    if used is None or used["unit"] == "flops" or used["used"] is None:
        return []
    asked, found = (budget_words(used, used[key]) for key in ("asked", "used"))
    low, high = (budget_words(used, bound) for bound in used["ci95"])
    before = "" if used["predicted"] is None else f", predicted {budget_words(used, used['predicted'])}"
    return [f"budget {asked}{before}, measured {found} (95% CI {low} to {high}): {OUTCOMES[used['outcome']]}"]


def _times(before: float, after: float) -> str:
    return f"{ratios(before / after)[0]}x"


RESULTS = {
    "prune": Result(lambda run: run.read_json(run.plan, "prune"), _prune),
    "finetune": Result(lambda run: run.read_json(run.finetune, "finetune"), _finetune),
    "export": Result(_export, _show_export),
    "quantize": Result(lambda run: run.read_json(run.quantize, "quantize"), _quantize),
    "build": Result(lambda run: run.read_json(run.build, "build"), _build),
    "verify": Result(lambda run: run.read_json(run.verify, "verify"), _verify),
    "bench": Result(lambda run: run.read_json(run.bench, "bench"), _bench),
    "ship": Result(lambda run: run.read_json(run.shipped, "ship"), _show_ship),
    "report": Result(lambda run: run.read_json(run.report("json"), "report"), _report),
}
