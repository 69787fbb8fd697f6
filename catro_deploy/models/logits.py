"""The logits of a network, and whether they can be trusted: those of an image must not depend on other images."""

import torch
from torch import nn

from catro_deploy.errors import ModelError

__all__ = ["logits_of"]

LARGEST_DEVIATION = 1e-2
"""Share of the largest logit that counts as rounding: batches of other sizes are computed in another order."""
LARGEST_VARIATION = 1e-4
"""The same for a second call with equal images, which a GPU may sum in another order."""


def logits_of(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """The logits (n, classes) of ``model``, in eval mode, for ``images`` (n, channels, height, width).

    Raises:
        ModelError: the model returns something else, its logits for the same images vary between calls, or those for an
            image depend on the others of its batch.
    """
    with torch.no_grad():
        logits = model(images)
        if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(images):
            what = f"{tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
            raise ModelError(
                f"The model gives {what} for {len(images)} images, not logits (images, classes).",
                "Wrap it in a module whose forward returns the logits alone.",
            )
        alone, again = model(images[:1]), model(images[:1])
    largest = logits.abs().max()
    variation = (again - alone).abs().max()
    if variation > LARGEST_VARIATION * largest:
        raise ModelError(
            f"The logits of the same image vary between calls in eval mode: they differ by {variation:.3g}.",
            "Draw no random numbers in eval mode: remove noise, and write functional.dropout(x, p, self.training); the "
            "default of its third argument is True. The forward must not change buffers either.",
        )
    deviation = (alone - logits[:1]).abs().max()
    if deviation > LARGEST_DEVIATION * largest:  # false for NaN, which is reported later
        raise ModelError(
            f"The logits of an image depend on the other images of its batch: they differ by {deviation:.3g} without "
            "them.",
            "Normalise by running statistics (track_running_stats = True), and do not compute means over a batch.",
        )
    return logits
