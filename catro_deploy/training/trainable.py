"""Whether a network can be trained: which parameters would stay, and what its forward returns in training mode."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from catro_deploy.errors import ModelError

__all__ = ["frozen_words", "require_trainable"]

SHOWN = 3
REMEDY = (
    "Pruning follows the forward in eval mode. Remove what only training runs, such as auxiliary heads, and return the "
    "logits alone; or do not fine-tune: epochs = 0."
)


def frozen_words(model: nn.Module) -> str:
    """Which parameters of ``model`` a training leaves as they are; empty if there are none."""
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    if not frozen:
        return ""
    count = sum(1 for _ in model.parameters())
    shown = ", ".join(frozen[:SHOWN]) + (", ..." if len(frozen) > SHOWN else "")
    return f"{len(frozen)} of {count} parameters are not trained, since requires_grad is False: {shown}"


def require_trainable(model: nn.Module, input_shape: Sequence[int]) -> None:
    """Check a copy of ``model`` in training mode, on noise of ``input_shape`` (channels, height, width).

    Raises:
        ModelError: no parameter requires gradients, the forward fails on such images, or it fails or returns something
            else in training mode.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError(
            "The network cannot be trained: requires_grad is False for all of its parameters.",
            "Call requires_grad_(True) on the model, in its factory if it has one; or do not fine-tune it: epochs = 0.",
        )
    device = next(model.parameters()).device
    images = torch.randn((2, *input_shape), generator=torch.Generator().manual_seed(0)).to(device)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(gpus), torch.no_grad():  # dropout must not change the caller's random numbers
        trial = copy.deepcopy(model)
        try:
            expected = trial.eval()(images)
            found = trial.train()(images)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a user's forward may raise
            reason = f"{type(error).__name__}: {error}"
            if not trial.training:
                raise ModelError(
                    f"The model fails on images of shape {tuple(input_shape)}: {reason}",
                    "Check [data] size, and that [model] mean has one value for each colour channel.",
                ) from error
            raise ModelError(
                f"The network cannot be trained: its forward fails in training mode: {reason}", REMEDY
            ) from error
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        what = f"{tuple(found.shape)}" if isinstance(found, torch.Tensor) else f"a {type(found).__name__}"
        raise ModelError(
            f"The network cannot be trained: in training mode, its forward returns {what} for {len(images)} images, "
            f"not logits {tuple(expected.shape)}.",
            REMEDY,
        )
