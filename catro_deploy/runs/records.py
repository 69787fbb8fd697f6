"""The records of a run folder: the file of each, and the command that writes it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from catro_deploy.errors import MessageError, RunFolderError
from catro_deploy.records import (
    Bench,
    Build,
    Finetune,
    Plan,
    Quantize,
    Record,
    Runtimes,
    Screened,
    Search,
    Shipped,
    TriedPoint,
    TriedVariant,
    Variants,
    Verify,
)
from catro_deploy.records.files import read_record, record_of, write_record
from catro_deploy.records.report import Report
from catro_deploy.runs.folder import RunFolder

__all__ = ["from_device", "load", "load_if_there", "save"]

R = TypeVar("R", bound=Record)

_FILES: dict[type[Record], tuple[Callable[[RunFolder], Path], str]] = {
    Bench: (lambda run: run.bench, "bench"),
    Build: (lambda run: run.build, "build"),
    Finetune: (lambda run: run.finetune, "finetune"),
    Plan: (lambda run: run.plan, "prune"),
    Quantize: (lambda run: run.quantize, "quantize"),
    Report: (lambda run: run.report("json"), "report"),
    Runtimes: (lambda run: run.runtimes, "bench"),
    Screened: (lambda run: run.screened, "run"),
    Search: (lambda run: run.search, "run"),
    Shipped: (lambda run: run.shipped, "ship"),
    TriedPoint: (lambda run: run.point, "run"),
    TriedVariant: (lambda run: run.variant, "run"),
    Variants: (lambda run: run.variants, "run"),
    Verify: (lambda run: run.verify, "verify"),
}
"""The path of each record, and the command that writes it."""


def load(kind: type[R], run: RunFolder) -> R:
    """Read the record of this ``kind`` in ``run``.

    Raises:
        RunFolderError: it is missing, damaged, or of another format.
    """
    path_in, command = _FILES[kind]
    path = run.require(path_in(run), command)
    return read_record(kind, path, f"Make it again: catro-deploy {command} --run {run.path} --force")


def load_if_there(kind: type[R], run: RunFolder) -> R | None:
    """Like ``load``, but return None if the record does not exist.

    Raises:
        RunFolderError: it is damaged, or of another format.
    """
    return load(kind, run) if _FILES[kind][0](run).is_file() else None


def save(record: Record, run: RunFolder) -> None:
    """Write ``record`` to its file in ``run``, whole or not at all.

    Raises:
        ValueError: it contains a value that ``load`` would reject.
        StorageError: the file cannot be written.
    """
    write_record(record, _FILES[type(record)][0](run))


def from_device(kind: type[R], content: Mapping[str, Any], device: str) -> R:
    """The record of this ``kind`` with the ``content`` that the agent on ``device`` reported.

    Raises:
        MessageError: the content is not such a record.
    """
    text = json.dumps({**content, "format": kind.FORMAT})
    try:
        return record_of(kind, text, f"The result of {device}", "Update catro-deploy there, and run it again.")
    except RunFolderError as error:
        raise MessageError(error.problem, error.hint) from None
