"""Figures of a report, computed from the records of a run."""

from collections.abc import Sequence
from dataclasses import replace

from catro_deploy.records import (
    Accuracy,
    Bench,
    Budget,
    Build,
    Engine,
    GroupPlan,
    ModeTimes,
    Plan,
    Samples,
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
    ImageFigures,
    Latency,
    MacsShare,
    Milliseconds,
    ModeFigures,
    NetworkFigures,
    Pair,
    Verification,
    VerifiedNetwork,
)
from catro_deploy.report.few import interval_of
from catro_deploy.report.images import accuracy_words, images_words

__all__ = [
    "agreement_figures",
    "class_figures",
    "dropped_figures",
    "engine_figures",
    "group_figures",
    "histogram",
    "image_figures",
    "macs_share",
    "mode_figures",
    "network_figures",
    "verification_figures",
    "with_accuracy",
    "with_times",
]

BINS = 120


def macs_share(plan: Plan) -> MacsShare:
    """The remaining share of multiply-accumulates, and the budget if it counts these."""
    budget = Budget.parse(plan.budget)
    return MacsShare(plan.pruned_macs / plan.original_macs, budget.amount if budget.unit == "flops" else None)


def image_figures(plan: Plan) -> ImageFigures:
    """The size of the images, and the original's accuracy on the validation images before pruning."""
    _, height, width = plan.input_shape
    look = plan.first_look
    return ImageFigures(
        images_words(look.sizes if look else None, width, height), accuracy_words(look) if look else None, look
    )


def network_figures(macs: int, params: int) -> NetworkFigures:
    """The size of a network, without any measurements."""
    return NetworkFigures(None, None, macs, params, None, None, None)


def with_accuracy(network: NetworkFigures, accuracy: float | None, images: int) -> NetworkFigures:
    """``network`` with its ``accuracy``, a fraction of ``images`` test images; None if they have no labels."""
    return replace(network, accuracy=accuracy, accuracy_ci95=interval_of(accuracy, images))


def with_times(network: NetworkFigures, times: Samples) -> NetworkFigures:
    """``network`` with its measured latency."""
    latency = Latency(**vars(_milliseconds(times)), mean=times.mean_us / 1000)
    return replace(network, latency_ms=latency, latency_cv=times.cv, calls=times.n)


def _milliseconds(times: Times) -> Milliseconds:
    return Milliseconds(times.p50_us / 1000, times.p90_us / 1000, times.p99_us / 1000)


def mode_figures(bench: Bench) -> tuple[ModeFigures, ...]:
    """All modes, starting with the one that counts; empty if there is only one."""
    if not bench.further:
        return ()
    return tuple(
        ModeFigures(one.mode, _milliseconds(one.original), _milliseconds(one.pruned), one.speedup)
        for one in (ModeTimes(bench.original, bench.pruned, bench.speedup, bench.mode, bench.warnings), *bench.further)
    )


def engine_figures(build: Build) -> dict[str, EngineFigures]:
    """Both engines, by network."""
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
        dla_parts=engine.dla_parts,
    )


def agreement_figures(verify: Verify) -> AgreementFigures:
    """Agreement with the original, with its interval."""
    found = verify.agreement_with_original
    return AgreementFigures(**vars(found), ci95=interval_of(found.share, verify.test_images))


def class_figures(verify: Verify) -> tuple[ClassFigures, ...]:
    """Accuracy of both networks, by class."""
    pairs = zip(verify.original.per_class, verify.pruned.per_class, strict=True)
    return tuple(ClassFigures(o.name, o.images, o.runtime, p.runtime) for o, p in pairs)


def group_figures(group: GroupPlan) -> GroupFigures:
    """Widths of a group before and after."""
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


def verification_figures(verify: Verify) -> Verification:
    """The results of verification, without the figures that are elsewhere in the report."""
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


def dropped_figures(plan: Plan) -> Dropped:
    """Residual branches that were removed, and the layers in them."""
    if not plan.dropped:
        return Dropped((), ())
    by_layer = plan.latency.by_layer if plan.latency else {}
    layers = tuple(name for name, (_, after_us) in by_layer.items() if after_us == 0)
    return Dropped(plan.dropped, layers or plan.dropped)


def histogram(original_us: Sequence[float], pruned_us: Sequence[float]) -> Histogram:
    """Counts on a common axis, which leaves out the slowest calls so that the rest stays visible.

    These are the slowest 0.5% of each network, and those that would leave less than a quarter of the axis to the range
    from the fastest call to the 75th percentile: on a busy machine, a tenth of the calls may take many times as long.
    """
    ordered = [sorted(original_us), sorted(pruned_us)]
    low = min(samples[0] for samples in ordered)
    high = max(samples[min(len(samples) - 1, int(len(samples) * 0.995))] for samples in ordered)
    usual = max(samples[int((len(samples) - 1) * 0.75)] for samples in ordered) - low
    high = min(high, low + 4 * usual) if usual else high
    margin = (high - low) * 0.03 or low * 0.05
    low, high = max(0.0, low - margin), high + margin
    if low < high / 2:  # start at 0, so that half the latency looks like half
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
