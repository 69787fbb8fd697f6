"""Programs for users of a network: load it, classify images with its ONNX file, reproduce the run."""

import json
import shlex
from pathlib import Path

from catro_deploy.records import Shipped
from catro_deploy.records.report import Report
from catro_deploy.report.rendering import render

__all__ = ["feeding_words", "infer_code", "load_code", "reproduce_code"]

PROVIDERS = {
    "onnxruntime-cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    "onnxruntime-tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
}
"""ONNX Runtime's execution providers by the target's runtime; other runtimes use the CPU provider."""


OPENVINO_DEVICES = {"openvino": "CPU", "openvino-gpu": "GPU", "openvino-npu": "NPU"}


def load_code() -> str:
    """A program that loads the pruned network in PyTorch."""
    return render("load.py.jinja")


def feeding_words(shipped: Shipped) -> str:
    """How the program of ``infer_code`` preprocesses images."""
    given = shipped.input
    order = "channels first (NCHW)" if given.layout == "NCHW" else "channels last (NHWC)"
    if given.type == "uint8":
        return f"Raw pixels, uint8, {order}; the network normalises them. The file's metadata states this as well."
    return (
        f"Pixels in 0..1, minus the mean, divided by the standard deviation, {order}, float32. "
        "The file's metadata has the same values."
    )


def infer_code(shipped: Shipped) -> str:
    """A program that classifies image files with the network of ``shipped``, which is in the same folder."""
    given = shipped.input
    channels, height, width = given.image_shape
    return render(
        "infer.py.jinja",
        shipped=shipped,
        given=given,
        channels=channels,
        height=height,
        width=width,
        softmax=shipped.output.name != "logits",
        providers=json.dumps(PROVIDERS.get(shipped.runtime, ["CPUExecutionProvider"])),
        device=OPENVINO_DEVICES.get(shipped.runtime),
        graph=Path(shipped.file).with_suffix(".xml"),
        comments=_runtime_comments(shipped),
    )


def _runtime_comments(shipped: Shipped) -> list[str]:
    needs = "Needs onnxruntime, numpy and Pillow."
    if shipped.runtime in OPENVINO_DEVICES:
        return ["Needs openvino, numpy and Pillow."]
    if shipped.runtime != "tensorrt":
        return [needs]
    return [
        f"{needs} It runs on any machine by ONNX Runtime; on {shipped.target} the same input is used",
        f"for the TensorRT engine of {shipped.file}. Build it with catro-deploy build or, on the device, with",
        f"trtexec --stronglyTyped --onnx={shipped.file} --saveEngine=pruned.engine",
    ]


def reproduce_code(report: Report) -> str:
    """Commands that reproduce the run, and those that only repeat the measurement."""
    budget = str(report.settings.get("budget", report.budget))
    targets = [report.target, *(str(name) for name in report.settings.get("also", []))]
    words = ["catro-deploy", "run", *(word for name in targets for word in ("--target", name)), "--budget", budget]
    for limit in ("max_size", "max_memory", "max_energy"):
        if asked := report.settings.get(limit):
            words += [f"--{limit.replace('_', '-')}", str(asked)]
    wanted = [str(name) for name in report.settings.get("classes", [])]
    if any("," in name for name in wanted):  # a comma separates names on the command line
        wanted = [str(index) for index in report.class_indices]
    if wanted:
        words += ["--classes", ",".join(wanted)]
    return render("reproduce.sh.jinja", command=shlex.join(words), measured=report.speedup is not None)
