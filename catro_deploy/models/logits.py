"""The logits of a network, and whether they can be trusted: those of an image must not depend on other images."""

import torch
from torch import nn

from catro_deploy.errors import ModelError

__all__ = ["logits_of"]

LARGEST_DEVIATION = 1e-2
"""Share of the largest logit that counts as rounding: batches of other sizes are computed in another order."""


def logits_of(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """The logits (n, classes) of ``model``, in eval mode, for ``images`` (n, channels, height, width).

    Raises:
        ModelError: the model returns something else, or its logits for an image depend on the others of its batch.
    """
    with torch.no_grad():
        logits = model(images)
        if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(images):
            what = f"{tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
            raise ModelError(
                f"The model gives {what} for {len(images)} images, not logits (images, classes).",
                "Wrap it in a module whose forward returns the logits alone.",
            )
        deviation = (model(images[:1]) - logits[:1]).abs().max()
    if deviation > LARGEST_DEVIATION * logits.abs().max():  # false for NaN, which is reported later
        raise ModelError(
            f"The logits of an image depend on the other images of its batch: they differ by {deviation:.3g} without "
            "them.",
            "Normalise by running statistics (track_running_stats = True), and do not compute means over a batch.",
        )
    return logits
