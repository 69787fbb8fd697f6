"""What a training did, epoch by epoch."""

from dataclasses import dataclass

__all__ = ["Epoch", "History"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training images.

    Attributes:
        epoch: from 1 on.
        loss: mean over the epoch's steps.
        learning_rate: of its last step.
        validation_accuracy: a fraction, after the epoch; None without validation images.
        seconds: training and validation.
    """

    epoch: int
    loss: float
    learning_rate: float
    validation_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class History:
    """All epochs; accuracies are fractions, None without validation images.

    Attributes:
        epochs: in order, those before an interruption included.
        validation_accuracy: of the final weights.
        baseline_validation_accuracy: of the weights before the first epoch.
        seconds: sum over the epochs.
        device: ``cpu`` or ``cuda``, where the last part ran.
        images: number of training images.
        processes: how many trained together when it ended.
    """

    epochs: tuple[Epoch, ...]
    validation_accuracy: float | None
    baseline_validation_accuracy: float | None
    seconds: float
    device: str
    images: int
    processes: int = 1
