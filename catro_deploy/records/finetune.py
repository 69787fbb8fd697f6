"""finetune.json: the course of a training, epoch by epoch, and whether its result is used."""

from dataclasses import dataclass
from typing import Literal

from catro_deploy.records.base import Count, Divergence, NonNegative, Number, Positive, PositiveCount, Record, Share

__all__ = ["Choice", "Epoch", "Finetune", "History", "Probe", "Score"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training images.

    Attributes:
        epoch: number of the epoch, from 1.
        loss: mean over the epoch's steps.
        learning_rate: learning rate of the last step.
        validation_accuracy: a fraction, after the epoch; None without validation images.
        seconds: duration of training and validation.
    """

    epoch: PositiveCount
    loss: Number
    learning_rate: NonNegative
    validation_accuracy: Share | None
    seconds: NonNegative


@dataclass(frozen=True)
class Probe:
    """Learning rates that were tried before the training, each from the same weights and on the same batches.

    Attributes:
        steps: number of steps at each learning rate.
        learning_rates: the learning rates in ascending order.
        losses: for each, the mean loss over training batches that its steps did not use; None if not finite.
        loss_before: the loss of the network before any step, on the same batches; None if not finite.
        chosen: the highest learning rate whose loss is below ``loss_before``; if there is none, the one with the
            smallest loss.
    """

    steps: PositiveCount
    learning_rates: tuple[Positive, ...]
    losses: tuple[Number | None, ...]
    loss_before: Number | None
    chosen: Positive


@dataclass(frozen=True)
class History:
    """All epochs; accuracies are fractions, None without validation images.

    Attributes:
        epochs: all epochs in order, including those before an interruption; empty if there was no training.
        validation_accuracy: accuracy of the final weights.
        baseline_validation_accuracy: accuracy of the weights before the first epoch.
        seconds: sum over the epochs.
        device: ``cpu`` or ``cuda``, where the last part ran.
        images: number of training images.
        processes: number of processes that trained together at the end.
        probe: how the learning rate was chosen; None if it was given or was derived from the number of steps alone.
    """

    epochs: tuple[Epoch, ...]
    validation_accuracy: Share | None
    baseline_validation_accuracy: Share | None
    seconds: NonNegative
    device: str
    images: Count
    processes: PositiveCount = 1
    probe: Probe | None = None


@dataclass(frozen=True)
class Score:
    """Accuracy (None without labels), agreement with the original and mean KL divergence from it, on validation images.

    The divergence is None if a logit is not finite.
    """

    accuracy: Share | None
    agreement: Share
    mean_kl_nats: Divergence | None


@dataclass(frozen=True)
class Choice:
    """The network that was ``kept``, and its scores on ``images`` validation images before and after training."""

    kept: Literal["pruned", "finetuned"]
    images: Count
    before: Score
    after: Score

    @property
    def harmful(self) -> bool:
        """Whether fewer predictions were right after training than before; at equal scores either may be kept."""
        before, after = self.before, self.after
        if before.accuracy is None or after.accuracy is None:
            return after.agreement < before.agreement
        return after.accuracy < before.accuracy


@dataclass(frozen=True, kw_only=True)
class Finetune(History, Record):
    """The history of the fine-tuning, and which network is used.

    ``original_validation_accuracy`` is None without validation images or labels. ``choice`` is None if nothing was
    compared, that is, without training or without validation images.
    """

    original_validation_accuracy: Share | None
    validation_images: Count
    choice: Choice | None

    @property
    def discarded(self) -> bool:
        """Whether training made the network worse, so that the weights from before it are final."""
        return self.choice is not None and self.choice.kept == "pruned"

    @property
    def trained(self) -> bool:
        """Whether the final weights come from training."""
        return bool(self.epochs) and not self.discarded
