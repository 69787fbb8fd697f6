"""What a training did, epoch by epoch."""

from dataclasses import dataclass

__all__ = ["Epoch", "History", "Probe"]


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
class Probe:
    """Learning rates that were tried before the training, each from the same weights and on the same batches.

    Attributes:
        steps: of each learning rate.
        learning_rates: in ascending order.
        losses: of each learning rate, the mean over training batches that its steps did not use; None if not finite.
        loss_before: of the network before any step, on the same batches; None if not finite.
        chosen: the highest learning rate whose loss is smaller than that; if none is, that of the smallest loss.
    """

    steps: int
    learning_rates: tuple[float, ...]
    losses: tuple[float | None, ...]
    loss_before: float | None
    chosen: float


@dataclass(frozen=True)
class History:
    """All epochs; accuracies are fractions, None without validation images.

    Attributes:
        epochs: in order, those before an interruption included; none if there was no training.
        validation_accuracy: of the final weights.
        baseline_validation_accuracy: of the weights before the first epoch.
        seconds: sum over the epochs.
        device: ``cpu`` or ``cuda``, where the last part ran.
        images: number of training images.
        processes: how many trained together when it ended.
        probe: how the learning rate was chosen; None if it was given or followed from the number of steps alone.
    """

    epochs: tuple[Epoch, ...]
    validation_accuracy: float | None
    baseline_validation_accuracy: float | None
    seconds: float
    device: str
    images: int
    processes: int = 1
    probe: Probe | None = None
