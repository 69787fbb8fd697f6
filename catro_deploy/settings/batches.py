"""The batch size of a training whose settings name none, and what that does to its learning rate."""

__all__ = ["LARGEST_BATCH", "batch_size", "scaled_rate"]

LARGEST_BATCH, LEAST_BATCH = 128, 16
# Training takes steps: a few hundred images in batches of 128 are three an epoch.
EPOCH_STEPS = 30


def batch_size(images: int) -> int:
    """The largest power of two, from 16 to 128, that gives an epoch of so many ``images`` at least 30 steps."""
    fitting = max(LEAST_BATCH, min(LARGEST_BATCH, images // EPOCH_STEPS))
    return 1 << fitting.bit_length() - 1


def scaled_rate(rate: float, batch: int) -> float:
    """A learning ``rate`` for batches of 128, scaled in proportion to a smaller ``batch``; a larger one keeps it."""
    return rate * min(1.0, batch / LARGEST_BATCH)
