"""The default batch size of training, and its effect on the learning rate."""

__all__ = ["LARGEST_BATCH", "batch_size", "scaled_rate"]

LARGEST_BATCH, LEAST_BATCH = 128, 16
# Training needs enough steps: a few hundred images in batches of 128 give only three per epoch.
EPOCH_STEPS = 30


def batch_size(images: int) -> int:
    """The largest power of two, from 16 to 128, with at least 30 steps in an epoch of ``images`` images."""
    fitting = max(LEAST_BATCH, min(LARGEST_BATCH, images // EPOCH_STEPS))
    return 1 << fitting.bit_length() - 1


def scaled_rate(rate: float, batch: int) -> float:
    """Scale a learning ``rate`` for batches of 128 in proportion to a smaller ``batch``; keep it for a larger one."""
    return rate * min(1.0, batch / LARGEST_BATCH)
