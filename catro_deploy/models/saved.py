"""A network's weights file with its logits for one image, which the network must give again when it is rebuilt.

A rebuilt network may differ in what no file of tensors holds: random numbers of its constructor, or changed code.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from catro_deploy.errors import CheckpointError, ModelError
from catro_deploy.models.checkpoint import load_checkpoint, save_weights
from catro_deploy.models.plain import copied

__all__ = ["restore_network_", "save_network"]

KEY = "catro_deploy.network"
LARGEST_DEVIATION = 1e-2
"""Largest deviation of the logits that may be rounding on another machine, as a share of the largest logit."""


def save_network(model: nn.Module, input_shape: Sequence[int], path: Path, plan: str = "") -> None:
    """Write the weights of ``model``, for images of ``input_shape`` (channels, height, width), and its logits.

    ``plan`` is the hash of its plan. All metadata is one entry: safetensors writes several in random order, and equal
    networks must give equal files.
    """
    logits = _logits(copied(model).cpu().float().eval(), input_shape)
    save_weights(model, path, {KEY: json.dumps({"plan": plan, "logits": logits.tolist()})})


def restore_network_(model: nn.Module, input_shape: Sequence[int], path: Path) -> None:
    """Load what ``save_network`` wrote into ``model``, rebuilt, on the CPU and in eval mode.

    Raises:
        CheckpointError: as ``load_checkpoint``.
        ModelError: the network gives other logits than when it was saved.
    """
    load_checkpoint(model, path)
    with safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get(KEY)
    if text is None:  # written by an earlier version
        return
    try:
        expected = torch.tensor(json.loads(text)["logits"], dtype=torch.float32)
    except (ValueError, TypeError, KeyError):
        raise CheckpointError(f"The metadata {KEY} of {path} is damaged.", "Copy or save the file again.") from None
    found = _logits(model, input_shape)
    if found.shape != expected.shape or not _agree(found, expected):
        raise ModelError(
            f"With the weights of {path}, {type(model).__name__} gives other logits than when it was saved.",
            "Its code has changed, or its constructor draws random numbers that are neither parameters nor buffers: "
            "restore the code, or seed these numbers in it.",
        )


def _agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    tolerance = LARGEST_DEVIATION * expected.abs().nan_to_num(0, 0).max().item()
    return torch.allclose(found, expected, 0, tolerance, equal_nan=True)


def _logits(model: nn.Module, input_shape: Sequence[int]) -> torch.Tensor:
    """Logits (classes) for an image without random numbers."""
    image = torch.sin(torch.arange(math.prod(input_shape), dtype=torch.float32)).reshape(1, *input_shape)
    with torch.no_grad():
        logits: torch.Tensor = model(image)[0]
    return logits
