"""Results of the stages as tables on the terminal. Every figure comes from a run folder's JSON file."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from catro_deploy.cli.show_budgets import budget_lines, budget_rows, device_rows, soak_line
from catro_deploy.records import (
    Accuracy,
    Bench,
    Build,
    ByRuntime,
    Finetune,
    LatencyPlan,
    Plan,
    PrunedAgreement,
    Quantize,
    Round,
    Runtimes,
    Shipped,
    Speedup,
    Verify,
)
from catro_deploy.records.report import Report
from catro_deploy.report.advice import advice_on
from catro_deploy.report.agreement import validation_heading
from catro_deploy.report.budgets import planned_figures
from catro_deploy.report.few import interval_of
from catro_deploy.report.finetuning import epochs_words, kept_words, scores_words
from catro_deploy.report.front import front_line
from catro_deploy.report.reconstruction import reconstruction_line
from catro_deploy.report.recovery import recovery_line
from catro_deploy.report.runtimes import runtimes_table, runtimes_words
from catro_deploy.report.shipping import kilobytes, shipping_words
from catro_deploy.report.tables import interval_row, percentiles, resized_sizes
from catro_deploy.report.variants import variants_line
from catro_deploy.report.verdict import prediction_word
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
from catro_deploy.settings.sides import size_text
from catro_deploy.units import counted

__all__ = [
    "Shown",
    "show_bench",
    "show_build",
    "show_export",
    "show_finetune",
    "show_prune",
    "show_quantize",
    "show_report",
    "show_runtimes",
    "show_ship",
    "show_verify",
]

Shown = Sequence[RenderableType]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def show_prune(plan: Plan, run: RunFolder) -> Shown:
    """Widths, their latency, and what was saved."""
    table = _table("channels of", "before", "after", "")
    for group in plan.groups:
        before, after = group.width, len(group.kept)
        remark = group.fixed or (_share(after, before) if after else "removed")
        table.add_row(_producers(group.producers), str(before), str(after), remark)
    macs = _before_after("MACs", plan.original_macs, plan.pruned_macs)
    parameters = _before_after("parameters", plan.original_params, plan.pruned_params)
    gone = [f"removed: the residual branches that end in {', '.join(plan.dropped)}"] if plan.dropped else []
    if plan.resized_to:
        gone.append(f"images are resized to {size_text(plan.resized_to)} inside the network")
    solved = [reconstruction_line(plan.reconstruction)] if plan.reconstruction else []
    budgets = budget_rows(planned_figures(plan))
    if plan.latency is None:
        return [table, *gone, f"{macs}, budget {plan.budget}; {parameters}", *solved, *budgets]
    return [table, *gone, f"{macs}; {parameters}", *_latency(plan.latency, plan.budget), *solved, *budgets]


def _latency(latency: LatencyPlan, budget: str) -> Shown:
    """How latency decided the widths: the rounds, the cost model, and the result."""
    shown: list[RenderableType] = [_rounds(latency.rounds)] if latency.rounds else []
    if errors := latency.errors:
        within = f"{errors.within_5:.1%} within 5%, {errors.within_10:.1%} within 10%"
        shown.append(
            f"cost model on {counted(errors.networks, 'network')} held out: {within}, RMSPE {errors.rmspe:.1%}, "
            f"Spearman {errors.spearman:.3f}"
        )
    before, after = latency.original_us, latency.predicted_us
    times = f"{duration(before)} -> {duration(after)} ({after / before:.3f}x)"
    outcome = f"latency, {prediction_word(latency)}: {times} for a budget of {budget}; {latency.source}"
    return [*shown, *latency.warnings, outcome]


def _rounds(rounds: Sequence[Round]) -> Table:
    table = _table("round", "predicted", "measured", "original", "measured ratio", "95% CI", "")
    for number, one in enumerate(rounds, 1):
        times = map(duration, (one.predicted_us, one.measured_us, one.original_us))
        interval = " to ".join(f"{bound:.3f}" for bound in one.speedup.ratio_ci95)
        table.add_row(str(number), *times, f"{one.speedup.ratio:.3f}x", interval, "taken" if one.taken else "")
    return table


def _share(part: float, whole: float) -> str:
    """``part`` as percent of ``whole``, to a tenth of a percent: ``49.8%``."""
    return f"{part / whole:.1%}"


def _producers(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else ", ".join(names)


def _before_after(what: str, before: int, after: int) -> str:
    return f"{what} {count(before)} -> {count(after)} ({_share(after, before)})"


def show_finetune(result: Finetune, run: RunFolder) -> Shown:
    """How long it took, and the accuracy before and after."""
    if not result.epochs:
        return [f"No training: validation accuracy {percent(result.validation_accuracy)}, as pruned"]
    minutes, seconds = divmod(round(result.seconds), 60)
    line = f"Fine-tuned {epochs_words(result)} in {minutes}:{seconds:02d} on {result.device}"
    if result.choice and result.discarded:
        return [line, kept_words(result.choice)]
    known = interval_of(result.validation_accuracy, result.validation_images)
    interval = f" ({share_interval(known)})" if known else ""
    return [f"{line}: {scores_words(result)}{interval}"]


def show_export(result: dict[str, Any], run: RunFolder) -> Shown:
    """A line for each file."""
    return [f"{model['file']} ({kilobytes(model['bytes'])})" for model in result.values()]


def _precisions(result: Quantize) -> Table:
    """What was tried, the fastest first, and why the others lost."""
    table = _table("precision", validation_heading(result).lower(), "p50", "of the original", "")
    for name, one in result.by_latency:
        table.add_row(name, percent(one.score), duration(one.us), f"{one.speedup.ratio:.3f}x", result.outcome(name))
    for name in result.lost.keys() - result.candidates.keys():
        table.add_row(name, "", "", "", result.lost[name])
    return table


def show_quantize(result: Quantize, run: RunFolder) -> Shown:
    """The precisions that were tried, and the one that is served."""
    made = result.integers
    stay = [f"stay in floating point: {', '.join(made.kept)}"] if made and made.kept else []
    if made and (qat := made.qat):
        last = qat.history.validation_accuracy
        reached = "" if last is None else f" to {percent(last)} on validation images"
        stay.append(f"fine-tuned for int8{reached}: {'used' if qat.used else 'no better, not used'}")
    return [_precisions(result), *stay, f"served: {run.onnx('pruned', result.shipped)}"]


def show_runtimes(result: Runtimes, run: RunFolder) -> Shown:
    """Each network by each runtime, and the fastest."""
    found = runtimes_table(result)
    table = _table(*(head[:1].lower() + head[1:] for head in found.head))
    for row in found.rows:
        table.add_row(*map(str, row))
    return [table, runtimes_words(result)]


def show_build(build: Build, run: RunFolder) -> Shown:
    """The engines, and where they run."""
    table = _table("TensorRT engine", "built in", "layers", "rebuilds, median", "copy here")
    for name, engine in (("original", build.original), ("pruned", build.pruned)):
        rebuilds = ", ".join(duration(us) for us in engine.rebuilds_us) or "none"
        copy = run.engine(name) if run.engine(name).is_file() else "it stays on the device"
        table.add_row(name, f"{engine.seconds:.0f} s", str(engine.layer_count), rebuilds, str(copy))
    place = build.pruned.place
    where = f"{place.gpu} ({place.sms} SMs), TensorRT {place.tensorrt}"
    return [table, f"They run on this device only: {where}"]


def show_verify(result: Verify, run: RunFolder) -> Shown:
    """Accuracy and agreement of both networks."""
    images = counted(result.test_images, "test image")
    steps = [recovery_line(result.recovery)] if result.recovery else []
    agreement = f"{images}: {_agreement(result.agreement_with_original)}"
    if result.accuracy_drop_points is None:
        found = f"{images} without labels: {_agreement(result.agreement_with_original)}"
        return [_runtime_table(result), found, *steps, *result.problems]
    table = _table("accuracy", "PyTorch", result.runtime, "agreement", "largest logit difference")
    for name, of in (("original", result.original), ("pruned", result.pruned)):
        accuracies = (percent(of.torch), percent(of.runtime), percent(of.agreement))
        table.add_row(name, *accuracies, _difference(of))
    if in_ort := result.onnxruntime:
        for name, other in (("original", in_ort.original), ("pruned", in_ort.pruned)):
            cells = ("", percent(other.accuracy), percent(other.agreement), _difference(other))
            table.add_row(f"{name}, float32 in {in_ort.runtime} here", *cells)
    drop = f"{points(-result.accuracy_drop_points)} points{_change(result.agreement_with_original)}"
    return [table, f"{images}: {drop}", agreement, *steps, *result.problems]


def _change(agreement: PrunedAgreement) -> str:
    """The interval of the change in accuracy, if it was recorded."""
    changed = agreement.accuracy_change_ci95
    return f" ({change_interval(changed)})" if changed else ""


def _runtime_table(result: Verify) -> Table:
    """Agreement of PyTorch and the runtime, without accuracies."""
    table = _table(f"PyTorch and {result.runtime}", "agreement", "largest logit difference")
    for name, of in (("original", result.original), ("pruned", result.pruned)):
        table.add_row(name, percent(of.agreement), _difference(of))
    return table


def _agreement(found: PrunedAgreement) -> str:
    same = percent(found.share)
    return f"the pruned network gives the original's prediction to {same}, mean KL {nats(found.mean_kl_nats)}"


def _difference(of: Accuracy | ByRuntime) -> str:
    difference = of.largest_logit_difference
    return "not finite" if difference is None else f"{difference:.1e}"


def show_bench(result: Bench, run: RunFolder) -> Shown:
    """Latencies of both networks, and the speedup."""
    table = _table("latency", "p50 ms", "p90 ms", "p99 ms", "calls")
    for name, of in (("original", result.original), ("pruned", result.pruned)):
        table.add_row(name, *(ms(us / 1000) for us in (of.p50_us, of.p90_us, of.p99_us)), count(of.n))
    soaked = [soak_line(result.soak, result.pruned.p50_us)] if result.soak else []
    return [table, _speedup(result.speedup), *soaked, *result.warnings]


def _speedup(speedup: Speedup) -> str:
    median, low, high = ratios(speedup.median, *speedup.ci95)
    return f"speedup of the median {median}x (95% CI {low} to {high})"


def show_report(report: Report, run: RunFolder) -> Shown:
    """The summary of a whole run."""
    table = _table("", "original", "pruned", "")
    before, after = report.original, report.pruned
    if report.verification:
        table.add_row("precision", report.verification.precision.original, report.verification.precision.pruned, "")
    table.add_row(*_accuracy(report))
    if before.accuracy_ci95:
        name, *intervals = interval_row(report)
        table.add_row(name.lower().replace("ci", "CI"), *intervals)
    for name, pair in percentiles(*report.latencies).items() if report.latencies else ():
        if name != "mean":
            interval = report.speedup.ci95 if report.speedup and name == "p50" else ()
            table.add_row(f"{name} ms", *map(ms, pair), _times(*pair, *interval))
    if (latency := report.latency_plan) and not report.latencies:
        pair = latency.original_us, latency.predicted_us
        table.add_row(f"latency, {prediction_word(latency)}", *map(duration, pair), _times(*pair))
    for name, old, new in (("MACs", before.macs, after.macs), ("parameters", before.params, after.params)):
        table.add_row(name, count(old), count(new), _share(new, old))
    if resized := resized_sizes(report.input):
        table.add_row("computes at", *resized, "")
    title = f"{report.target}, {len(report.classes)} classes, {report.budget}"
    searched = [front_line(report.search)] if report.search else []
    searched += [variants_line(report.variants, report.variant_taken)] if report.variants else []
    steps = [recovery_line(report.recovery)] if report.recovery else []
    warnings = [warning for warning in report.warnings if warning != report.unchecked]
    figures: Shown = [*device_rows(report), *budget_lines(report), *budget_rows(report.budgets)]
    last = filter(None, [report.verdict, advice_on(report), f"Report: {run.report('html')}"])
    outcome = [*steps, *searched, *figures, *warnings, *last]
    tried = [_precisions(report.quantize)] if report.quantize else []
    shipped = [*filter(None, [report.unchecked]), *(show_ship(report.ship, run) if report.ship else ())]
    return [title, table, *tried, *outcome, *shipped]


def show_ship(shipped: Shipped, run: RunFolder) -> Shown:
    """What to ship, with its input and outputs."""
    return [f"{name}: {text}" for name, text in shipping_words(shipped, str(run.shipped.parent), isolate=False)]


def _accuracy(report: Report) -> tuple[str, str, str, str]:
    if report.agreement and not report.labelled:
        return "same prediction as the original", "", percent(report.agreement.share), "not an accuracy"
    if report.accuracy_drop_points is not None:
        accuracies = percent(report.original.accuracy), percent(report.pruned.accuracy)
        return "accuracy", *accuracies, f"{points(-report.accuracy_drop_points)} points"
    found, original = report.validation_accuracy, report.original_validation_accuracy
    if found is None:
        return "accuracy", "", "not measured", ""
    name = "validation accuracy, by PyTorch"
    if original is None:
        return name, "", percent(found), ""
    return name, percent(original), percent(found), f"{points((found - original) * 100)} points"


def _times(before: float, after: float, *interval: float) -> str:
    """The ratio with as many decimals as the verdict, where it is shown with its ``interval``."""
    return f"{ratios(before / after, *interval)[0]}x"
