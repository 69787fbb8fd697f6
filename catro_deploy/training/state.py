"""The state of an interrupted training: one safetensors file, written atomically.

The names of tensors have a prefix: ``model.``, ``momentum.``, ``ema.`` if weights are averaged and, with patience,
``best.``. Everything else is JSON in the file's metadata. No random state is kept: each step seeds its generators from
the settings' seed, its epoch and its number.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from catro_deploy.errors import CheckpointError
from catro_deploy.files import require_regular, write_bytes
from catro_deploy.records import Epoch, Probe
from catro_deploy.records.base import NonNegative, PositiveCount, Share

__all__ = ["Partial", "State", "read_state", "tensors_hash", "write_state"]

METADATA_KEY = "training"


Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Partial:
    """The finished part of an epoch.

    Attributes:
        losses: of its steps, means over the processes.
        seconds: the time that these steps took.
        size: number of images in a batch, over all processes.
    """

    losses: tuple[float, ...]
    seconds: NonNegative
    size: PositiveCount


@dataclass(frozen=True)
class State:
    """The state of a training after its last complete epoch, or within the next one.

    Attributes:
        fingerprint: hash of everything that determines the training; a different one is a different training.
        epochs: those that are finished.
        baseline: validation accuracy before the first epoch.
        model: weights and buffers by name.
        momentum: the optimiser's buffers by parameter name.
        ema: averaged weights and buffers by name; empty if none are kept.
        best: weights and buffers after the epoch of the best validation accuracy; empty without patience.
        scaler: state of the loss scaling; empty if there is none.
        probe: how the learning rate was chosen; None if no rates were tried.
        partial: the finished part of the next epoch; None if there is none.
    """

    fingerprint: str
    epochs: tuple[Epoch, ...]
    baseline: float | None
    model: dict[str, torch.Tensor]
    momentum: dict[str, torch.Tensor]
    ema: dict[str, torch.Tensor]
    best: dict[str, torch.Tensor]
    scaler: dict[str, int | float]
    probe: Probe | None = None
    partial: Partial | None = None

    @property
    def best_epoch(self) -> Epoch | None:
        """The epoch with the best validation accuracy, the latest if equal; None if nothing was validated."""
        validated = [epoch for epoch in self.epochs if epoch.validation_accuracy is not None]
        return max(validated, key=lambda one: (one.validation_accuracy, one.epoch), default=None)

    @property
    def epochs_without_gain(self) -> int:
        """The number of last epochs in which validation accuracy was not above that of all earlier ones."""
        if (best := self.best_epoch) is None:
            return 0
        first = next(one for one in self.epochs if one.validation_accuracy == best.validation_accuracy)
        return len(self.epochs) - first.epoch

    def fits(self, model: Tensors, parameters: Tensors, scaler: Mapping[str, object], *, averaged: bool) -> bool:
        """Whether names and shapes are those of ``model``, its trained ``parameters`` and the state of ``scaler``."""
        own = _shapes(model)
        wholes = [self.model, *([self.ema] if averaged else []), *([self.best] if self.best else [])]
        return (
            all(_shapes(whole) == own for whole in wholes)
            and _shapes(self.momentum).items() <= _shapes(parameters).items()
            and not (self.scaler and scaler and self.scaler.keys() != scaler.keys())
        )


@dataclass(frozen=True)
class _Record:
    """The part of a state that is not tensors."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    fingerprint: str
    epochs: tuple[Epoch, ...]
    baseline: Share | None
    scaler: dict[str, int | float]
    probe: Probe | None
    partial: Partial | None


def write_state(path: Path, state: State) -> None:
    """Write ``state`` to ``path``, replacing an earlier one.

    Raises:
        StorageError: the disk is full, or the folder cannot be written.
    """
    parts = {"model": state.model, "momentum": state.momentum, "ema": state.ema, "best": state.best}
    # Copies, since safetensors refuses tensors that share memory, such as tied weights.
    tensors = {
        f"{prefix}.{name}": tensor.detach().cpu().contiguous().clone()
        for prefix, part in parts.items()
        for name, tensor in part.items()
    }
    record = {
        "fingerprint": state.fingerprint,
        "epochs": [asdict(epoch) for epoch in state.epochs],
        "baseline": state.baseline,
        "scaler": state.scaler,
        "probe": asdict(state.probe) if state.probe else None,
        "partial": asdict(state.partial) if state.partial else None,
    }
    write_bytes(path, save(tensors, {METADATA_KEY: json.dumps(record)}))


def read_state(path: Path) -> State:
    """Read what ``write_state`` wrote; tensors are on the CPU.

    Raises:
        CheckpointError: the file is damaged or is something else.
    """
    try:
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            record = _record((file.metadata() or {})[METADATA_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        return State(
            fingerprint=record.fingerprint,
            epochs=record.epochs,
            baseline=record.baseline,
            model=_part(tensors, "model."),
            momentum=_part(tensors, "momentum."),
            ema=_part(tensors, "ema."),
            best=_part(tensors, "best."),
            scaler=record.scaler,
            probe=record.probe,
            partial=record.partial,
        )
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} should hold an interrupted training, but it cannot be read ({type(error).__name__}: {error}).",
            "Delete it to start the training over.",
        ) from error


def tensors_hash(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, types, shapes and values, in hexadecimal."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _record(text: str) -> _Record:
    """Parse the metadata.

    Raises:
        ValueError: it is not JSON, or a value is missing, of a wrong type or out of range.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        record: _Record = TypeAdapter(_Record).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or METADATA_KEY}: {first['msg']}") from None
    return record


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _shapes(tensors: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
