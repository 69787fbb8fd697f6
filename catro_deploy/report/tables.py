"""What the Markdown and the HTML report both say: tables as plain rows, conditions, and code to copy."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catro_deploy.report.wording import change, count, flatten, label, large, ms, percent, points, value

__all__ = [
    "FEEDING",
    "LOAD_CODE",
    "Table",
    "class_table",
    "conditions",
    "how_measured",
    "onnx_code",
    "records_table",
    "reproduce_code",
    "summary_table",
    "title",
    "width_table",
]


@dataclass(frozen=True)
class Table:
    """Texts in rows; ``numeric`` names the columns that stand right-aligned."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


FEEDING = (
    "Pixels in 0..1, minus the mean, divided by the standard deviation, channels first (NCHW), float32. "
    "The file's metadata has the same values."
)
LOAD_CODE = """\
import catro_deploy

model = catro_deploy.load("RUN_FOLDER")  # a torch.nn.Module in eval mode
"""


def title(report: Mapping[str, Any]) -> str:
    """Network and device: ``cifar_resnet20, pruned for x86-cpu``."""
    return f"{report['model']}, pruned for {report['target']}"


def conditions(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a careful reader asks first: device, runtime, threads ...; what was not recorded is left out."""
    recorded = report["environment"] | report["protocol"]
    wanted = {
        "device": "Device",
        "cpu_model": "Processor",
        "runtime": "Runtime",
        "threads": "Threads",
        "batch": "Images a call",
        "precision": "Precision",
        "warmup_s": "Warm-up",
    }
    found = [(name, value(key, recorded[key])) for key, name in wanted.items() if recorded.get(key) is not None]
    calls = sorted({report[name]["calls"] for name in ("original", "pruned")})
    return [("Target", report["target"]), *found, ("Timed calls of each", " / ".join(map(count, calls)))]


def how_measured(report: Mapping[str, Any]) -> str:
    """The measuring in plain words."""
    protocol, verification = report["protocol"], report["verification"]
    return (
        f"Both networks ran in one process on the device and took turns of {protocol['block']} calls (A B A B "
        "...), after warm-up, so that a change of clock or load meets both. The speedup is the ratio of median "
        "latencies; its 95% confidence interval comes from a bootstrap over the turns "
        f"({count(protocol['bootstrap_resamples'])} redraws). Accuracy is top-1 on "
        f"{count(verification['test_images'])} test images, which neither pruning nor fine-tuning looked at, "
        f"computed by {verification['runtime']}. Multiply-accumulates (MACs) and parameters are counted from the "
        "layers' shapes. No figure here is estimated."
    )


def summary_table(report: Mapping[str, Any]) -> Table:
    """Original, pruned and change."""
    before, after = report["original"], report["pruned"]
    accuracies = [percent(network["accuracy"]) for network in (before, after)]
    rows: list[tuple[str, ...]] = [("Accuracy", *accuracies, f"{points(-report['accuracy_drop_points'])} points")]
    for key in ("p50", "p90", "p99", "mean"):
        old, new = before["latency_ms"][key], after["latency_ms"][key]
        rows.append((f"Latency {key}", f"{ms(old)} ms", f"{ms(new)} ms", change(old, new)))
    scatter = [f"{network['latency_cv']:.1%}" for network in (before, after)]
    rows.append(("Coefficient of variation", *scatter, ""))
    for key, name in (("macs", "MACs per image"), ("params", "Parameters")):
        rows.append((name, large(before[key]), large(after[key]), change(before[key], after[key])))
    return Table(("", "Original", "Pruned", "Change"), tuple(rows), frozenset({1, 2, 3}))


def class_table(report: Mapping[str, Any]) -> Table:
    """Accuracy by class."""
    rows = tuple(
        (
            entry["name"],
            count(entry["images"]),
            percent(entry["original"]),
            percent(entry["pruned"]),
            points((entry["pruned"] - entry["original"]) * 100),
        )
        for entry in report["per_class"]
    )
    return Table(("Class", "Test images", "Original", "Pruned", "Points"), rows, frozenset({1, 2, 3, 4}))


def width_table(report: Mapping[str, Any]) -> Table:
    """Widths by group, with the grounds."""
    rows = tuple(
        (
            group["name"],
            count(group["width_before"]),
            count(group["width_after"]),
            f"{group['width_after'] / group['width_before']:.0%}",
            "" if group["trace_ratio"] is None else f"{group['trace_ratio']:.4g}",
            "" if group["rounds"] is None else str(group["rounds"]),
            ", ".join(group["layers"]) + (f" (fixed: {group['fixed']})" if group["fixed"] else ""),
        )
        for group in report["groups"]
    )
    head = ("Group", "Before", "After", "Kept", "Trace ratio", "Rounds", "Layers that make its channels")
    return Table(head, rows, frozenset({1, 2, 3, 4, 5}))


def records_table(record: Mapping[str, Any], head: tuple[str, str]) -> Table:
    """Any record as rows of name and value."""
    return Table(head, tuple((label(key), value(key, content)) for key, content in flatten(record)))


def reproduce_code(report: Mapping[str, Any]) -> str:
    """Commands that do the run again, and those that only measure again."""
    words = ["catro-deploy", "run", "--target", report["target"], "--budget", report["budget"]]
    wanted = [str(name) for name in report["settings"].get("classes", [])]
    if any("," in name for name in wanted):  # a comma separates names on the command line
        wanted = [str(index) for index in report["class_indices"]]
    if wanted:
        words += ["--classes", ",".join(wanted)]
    return f"""\
# all of it, with every setting of this run
catro-deploy run --config RUN_FOLDER/run.toml --run ANOTHER_FOLDER

# the same from your own catro.toml
{shlex.join(words)}

# only the latencies
catro-deploy bench --run RUN_FOLDER --force
catro-deploy report --run RUN_FOLDER
"""


def onnx_code(report: Mapping[str, Any]) -> str:
    """A program that feeds pruned.onnx as it wants to be fed."""
    given = report["input"]
    channels, height, width = given["shape"]
    mode, order = ("RGB", ".transpose(2, 0, 1)") if channels == 3 else ("L", "[None]")
    axes = "height, width, channels" if channels == 3 else "height, width"
    return f"""\
import numpy as np
import onnxruntime
from PIL import Image

mean = np.array({given["mean"]}, np.float32)
std = np.array({given["std"]}, np.float32)
classes = {report["classes"]!r}

image = Image.open("image.png").convert("{mode}").resize(({width}, {height}), Image.Resampling.BILINEAR)
pixels = (np.asarray(image, np.float32) / 255 - mean) / std  # {axes}
batch = np.ascontiguousarray(pixels{order}[None])  # NCHW: 1, {channels}, {height}, {width}

session = onnxruntime.InferenceSession("pruned.onnx", providers=["CPUExecutionProvider"])
logits = session.run(None, {{session.get_inputs()[0].name: batch}})[0]
print(classes[int(logits[0].argmax())])
"""
