"""Describe the length of a training: in steps, since epochs of few images have few steps."""

from catro_deploy.settings.batches import LEAST_BATCH
from catro_deploy.units import counted

__all__ = ["FEW_STEPS", "step_lines"]

FEW_STEPS = 100
"""A training of fewer steps has little effect."""


def step_lines(steps: int, epoch_steps: int, batch: int) -> list[str]:
    """``880 training steps: 40 epochs of 22, batches of 16 images``; for few steps also a warning with advice."""
    epochs = -(-steps // epoch_steps)
    lines = [
        f"{counted(steps, 'training step')}: {counted(epochs, 'epoch')} of {epoch_steps:,}, batches of {batch} images"
    ]
    if steps < FEW_STEPS:
        smaller = f" or a smaller batch_size (now {batch})" if batch > LEAST_BATCH else ""
        lines.append(f"fewer than {FEW_STEPS} training steps change a network little: set more epochs{smaller}")
    return lines
