"""The accuracy that a weights file states for its network, if it states one."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from catro_deploy.files import require_regular
from catro_deploy.models.checkpoint import read_file, training_record

__all__ = ["stated_accuracy"]

KEYS = (
    "validation_accuracy", "val_accuracy", "val_acc", "valid_acc", "best_val_accuracy", "best_val_acc", "val_acc1",
    "best_accuracy", "best_acc", "best_acc1", "best_prec1", "test_accuracy", "test_acc", "accuracy", "acc", "acc1",
    "top1", "train_accuracy", "train_acc",
)  # fmt: skip
"""Common names of an accuracy in checkpoints, in order of precedence."""


def stated_accuracy(path: Path) -> float | None:
    """The accuracy under one of ``KEYS`` in the checkpoint ``path``, a fraction; None if there is none.

    A number above 1 is a percentage. Of a safetensors file, only the metadata is read, with the record of ``train``.

    Raises:
        CheckpointError: the file is missing or corrupt.
    """
    for record in _records(path):
        named = {str(key).lower(): value for key, value in record.items()}
        for key in KEYS:
            if (share := _share(named.get(key))) is not None:
                return share
    return None


def _records(path: Path) -> list[Mapping[Any, Any]]:
    if path.suffix == ".safetensors":
        try:
            require_regular(path)
            with safe_open(path, framework="pt") as file:
                trained = training_record(path)
                return [*([vars(trained)] if trained else []), file.metadata() or {}]
        except (OSError, SafetensorError):
            return []
    content = read_file(path)
    return [content] if isinstance(content, Mapping) else []


def _share(value: Any) -> float | None:  # noqa: ANN401 - whatever a file holds
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        return None
    if isinstance(value, bool) or not math.isfinite(number) or not 0 < number <= 100:
        return None
    return number / 100 if number > 1 else number
