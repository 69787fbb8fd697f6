"""A network's logits for a whole split."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy.data.base import Split
from catro_deploy.data.pixels import normalise
from catro_deploy.memory import reused_pages
from catro_deploy.models.modes import evaluated
from catro_deploy.training.reading import read_batches

__all__ = ["accuracy", "correct", "predict"]


def predict(
    model: nn.Module,
    split: Split,
    mean: Sequence[float],
    std: Sequence[float],
    batch_size: int,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Logits in float32 for every image of ``split``: shape (N, classes), on the CPU.

    The model runs on ``device`` in eval mode; afterwards it is where and in the modes that it was.

    Raises:
        DataError: an image is missing or cannot be decoded.
    """
    count = len(split.labels)
    parts = [_batch(start, count, batch_size) for start in range(0, count, batch_size)]
    device = torch.device(device)
    with evaluated(model, device) as network, torch.inference_mode(), reused_pages():
        logits = [
            network(normalise(pixels.to(device, non_blocking=True), mean, std)).float().cpu()
            for pixels in read_batches(split, parts, pin=device.type == "cuda")
        ]
    return torch.cat(logits) if logits else torch.empty(0, 0)


def accuracy(logits: torch.Tensor, labels: NDArray[np.int64]) -> float:
    """Share of rows whose largest logit is the label's, from 0 to 1; ``labels`` has at least one."""
    return correct(logits, labels) / len(labels)


def correct(logits: torch.Tensor, labels: NDArray[np.int64]) -> int:
    """Number of rows whose largest logit is the label's."""
    return int((logits.argmax(dim=1).numpy() == labels).sum()) if len(labels) else 0


def _batch(start: int, count: int, batch_size: int) -> NDArray[np.int64]:
    return np.arange(start, min(start + batch_size, count))
