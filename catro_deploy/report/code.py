"""Code to copy from a report: how to load the network, how to feed the ONNX file, how to repeat the run."""

import shlex

from catro_deploy.records.report import Report
from catro_deploy.report.rendering import render

__all__ = ["FEEDING", "load_code", "onnx_code", "reproduce_code"]

FEEDING = (
    "Pixels in 0..1, minus the mean, divided by the standard deviation, channels first (NCHW), float32. "
    "The file's metadata has the same values."
)


def load_code() -> str:
    """A program that loads the pruned network in PyTorch."""
    return render("load.py.jinja")


def onnx_code(report: Report, file: str) -> str:
    """A program that feeds the ONNX ``file`` as it wants to be fed."""
    given = report.input
    channels, height, width = given.shape
    shape = {"channels": channels, "height": height, "width": width}
    return render(
        "onnx.py.jinja", file=file, mean=list(given.mean), std=list(given.std), classes=list(report.classes), **shape
    )


def reproduce_code(report: Report) -> str:
    """Commands that repeat the run, and those that only measure again."""
    words = ["catro-deploy", "run", "--target", report.target, "--budget", report.budget]
    wanted = [str(name) for name in report.settings.get("classes", [])]
    if any("," in name for name in wanted):  # a comma separates names on the command line
        wanted = [str(index) for index in report.class_indices]
    if wanted:
        words += ["--classes", ",".join(wanted)]
    return render("reproduce.sh.jinja", command=shlex.join(words), measured=report.speedup is not None)
