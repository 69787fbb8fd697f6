"""finetune.json: what a training did, epoch by epoch, and whether its result is used."""

from dataclasses import dataclass
from typing import Literal

from catro_deploy.records.base import Count, Divergence, NonNegative, Number, Positive, PositiveCount, Record, Share

__all__ = ["Choice", "Epoch", "Finetune", "History", "Probe", "Score"]


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

    epoch: PositiveCount
    loss: Number
    learning_rate: NonNegative
    validation_accuracy: Share | None
    seconds: NonNegative


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

    steps: PositiveCount
    learning_rates: tuple[Positive, ...]
    losses: tuple[Number | None, ...]
    loss_before: Number | None
    chosen: Positive


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

    The divergence is None where a logit is not finite.
    """

    accuracy: Share | None
    agreement: Share
    mean_kl_nats: Divergence | None


@dataclass(frozen=True)
class Choice:
    """Which network was ``kept``, by ``images`` validation images, with the scores before and after training."""

    kept: Literal["pruned", "finetuned"]
    images: Count
    before: Score
    after: Score

    @property
    def harmful(self) -> bool:
        """Whether fewer answers were right after training than before; of equally good networks either may be kept."""
        before, after = self.before, self.after
        if before.accuracy is None or after.accuracy is None:
            return after.agreement < before.agreement
        return after.accuracy < before.accuracy


@dataclass(frozen=True, kw_only=True)
class Finetune(History, Record):
    """The history of the fine-tuning, and which network is used.

    ``original_validation_accuracy`` is None without validation images or labels; ``choice`` is None where nothing was
    compared: without training, or without validation images.
    """

    original_validation_accuracy: Share | None
    validation_images: Count
    choice: Choice | None

    @property
    def discarded(self) -> bool:
        """Whether training made the network worse, so that the weights from before it are the final ones."""
        return self.choice is not None and self.choice.kept == "pruned"

    @property
    def trained(self) -> bool:
        """Whether the final weights come from training."""
        return bool(self.epochs) and not self.discarded
