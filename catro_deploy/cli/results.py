"""Results of the stages: how they are read from a run folder, shown on the terminal, and written as JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from catro_deploy.cli.show import (
    Shown,
    show_bench,
    show_build,
    show_export,
    show_finetune,
    show_prune,
    show_quantize,
    show_report,
    show_runtimes,
    show_ship,
    show_verify,
)
from catro_deploy.records import Bench, Build, Finetune, Plan, Quantize, Record, Runtimes, Shipped, Verify
from catro_deploy.records.files import content_of
from catro_deploy.records.report import Report
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load

__all__ = ["RESULTS", "Result"]

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Result:
    """How a stage's result is read from a run folder, shown on the terminal, and written as JSON."""

    read: Callable[[RunFolder], Any]
    show: Callable[[Any, RunFolder], Shown]
    as_json: Callable[[Any], dict[str, Any]]


def _result(kind: type[R], show: Callable[[R, RunFolder], Shown]) -> Result:
    return Result(lambda run: load(kind, run), show, content_of)


def _export_files(run: RunFolder) -> dict[str, Any]:
    """The files that ``export`` wrote, with their sizes."""
    files = {"original": run.original_onnx, "pruned": run.pruned_onnx}
    halves = (run.onnx("original", "fp16"), run.onnx("pruned", "fp16"))
    files |= {path.name.removesuffix(".onnx"): path for path in halves if path.is_file()}
    return {name: {"file": str(path), "bytes": path.stat().st_size} for name, path in files.items()}


RESULTS = {
    "prune": _result(Plan, show_prune),
    "finetune": _result(Finetune, show_finetune),
    "export": Result(_export_files, show_export, dict),
    "quantize": _result(Quantize, show_quantize),
    "build": _result(Build, show_build),
    "verify": _result(Verify, show_verify),
    "bench": _result(Bench, show_bench),
    "runtimes": _result(Runtimes, show_runtimes),
    "ship": _result(Shipped, show_ship),
    "report": _result(Report, show_report),
}
