"""The basis of a report's figures in plain words: what was measured, where and how, and what was not measured."""

from typing import Any

from catro_deploy.agent.device import MeasuredClocks
from catro_deploy.agent.wire import read
from catro_deploy.errors import MessageError
from catro_deploy.records import BenchmarkApp, Protocol
from catro_deploy.records.figures import ImageFigures, Verification
from catro_deploy.records.report import Report
from catro_deploy.report.wording import count, ms, value

__all__ = ["basis", "conditions", "heading", "how_measured"]

COUNTED = "Multiply-accumulates (MACs) and parameters were counted from the layers' shapes."


def conditions(report: Report) -> list[tuple[str, str]]:
    """The conditions of the measurement: device, runtime, threads etc.; unrecorded ones are left out."""
    recorded = report.environment | {"warmup_s": report.protocol.warmup_s if report.protocol else None}
    wanted = {
        "reached": "Measured on",
        "device": "Device",
        "cpu_model": "Processor",
        "power_mode": "Power mode",
        "runtime": "Runtime",
        "threads": "Threads",
        "batch": "Images per call",
        "launch": "Launched",
        "precision": "Precision",
        "interface": "Input and output",
        "warmup_s": "Warm-up",
    }
    found = [(name, value(key, recorded[key])) for key, name in wanted.items() if recorded.get(key) is not None]
    if chosen := recorded.get("properties"):
        found.append(("Properties", ", ".join(f"{name} {choice}" for name, choice in chosen.items())))
    calls = sorted({network.calls for network in (report.original, report.pruned) if network.calls is not None})
    timed = [("Timed calls of each", " / ".join(map(count, calls)))] if calls else [("Timed calls", "none")]
    places = {engine.place.gpu for engine in report.engines.values()}
    gpu = [("GPU", place) for place in places]
    return [("Target", report.target), *gpu, *found, *_clocks(recorded), *timed, *_images(report.images)]


def _clocks(recorded: dict[str, Any]) -> list[tuple[str, str]]:
    """Clocks during the measurement, if they could be read."""
    content = {name: recorded.get(f"{name}_during") for name in ("clocks_mhz", "throttled")}
    try:
        found = read(MeasuredClocks, content, "clocks")
    except MessageError:  # the clocks were not recorded
        return []
    return [
        (f"{name} clock while measuring", f"{clock.lowest:g} to {clock.highest:g} MHz, median {clock.median:g} MHz")
        for name, clock in found.clocks_mhz.items()
    ]


def _images(images: ImageFigures) -> list[tuple[str, str]]:
    """The size of the images, and the original's accuracy on them before pruning."""
    looked = [("Original, before pruning", images.original)] if images.original else []
    return [("Images", images.size), *looked]


def heading(report: Report) -> str:
    """The heading of ``conditions`` and ``how_measured``."""
    return "How it was measured" if report.speedup or report.verification else "Basis of the figures"


def basis(report: Report) -> str:
    """Which figures were measured, counted, predicted or estimated."""
    latency = "Latencies were measured on the device named under environment."
    what = "Accuracies and agreement" if report.labelled else "Agreement with the original"
    accuracy = f"{what} were measured on the test images with the runtime named under verification."
    return " ".join(
        (
            latency if report.speedup else _out_of_reach(report),
            accuracy if report.verification else _validation(report),
            COUNTED,
            _computed(report),
        )
    )


def how_measured(report: Report) -> str:
    """The measurement in plain words."""
    return " ".join(
        (
            _timing(report.protocol) if report.protocol else _out_of_reach(report),
            *_other_timer(report.benchmark_app),
            _testing(report.verification, report) if report.verification else _validation(report),
            COUNTED,
            _computed(report),
        )
    )


def _timing(protocol: Protocol) -> str:
    settled = f" without the first {protocol.settling} of each turn" if protocol.settling else ""
    return (
        f"Both networks ran in one process on the device, interleaved in blocks of {protocol.block} calls (A B "
        f"A B ...){settled}, after warm-up, so that a change of clock or load affects both. The speedup is the ratio "
        "of median latencies; its 95% confidence interval comes from a moving-block bootstrap over successive turns "
        f"({count(protocol.bootstrap_resamples)} resamples)."
    )


def _other_timer(app: BenchmarkApp | None) -> list[str]:
    if app is None:
        return []
    original, pruned = (ms(us / 1000) for us in (app.original_us, app.pruned_us))
    return [
        f"OpenVINO's benchmark_app {app.version}, one network at a time, measures a median of {original} ms (original) "
        f"and {pruned} ms (pruned)."
    ]


def _testing(verification: Verification, report: Report) -> str:
    images = (
        f"{count(verification.test_images)} test images, which neither pruning nor fine-tuning used, computed "
        f"by {verification.runtime}."
    )
    same = "the share of images to which both networks give the same class"
    if not report.labelled:
        return f"Agreement is {same}, on {images} The images have no labels: which predictions are right is not known."
    return f"Accuracy is top-1 on {images}" + (f" Agreement is {same}." if report.agreement else "")


def _out_of_reach(report: Report) -> str:
    return f"No latency was measured: {report.target} could not be reached."


def _validation(report: Report) -> str:
    if report.validation_accuracy is None:
        return "No accuracy was measured."
    return "The accuracy is by PyTorch on validation images held out from the training set: it is not a test accuracy."


def _computed(report: Report) -> str:
    latency = report.latency_plan
    if latency is None:
        return "No figure here is estimated."
    if latency.how == "estimate":
        return f'Times called "estimate" were computed, not measured ({latency.source}).'
    return (
        'Times called "predicted" come from a cost model that was fitted to measurements on the target '
        f"({latency.source}). No other figure here is estimated."
    )
