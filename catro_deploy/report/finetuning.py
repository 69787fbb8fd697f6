"""Descriptions of the fine-tuning of the pruned network."""

from catro_deploy.records import Choice, Finetune
from catro_deploy.report.wording import count, nats, percent
from catro_deploy.units import counted

__all__ = ["epochs_words", "finetuning_words", "kept_words", "probe_words", "scores_words"]


def finetuning_words(finetune: Finetune) -> str:
    """A summary of the training from finetune.json, or a statement that there was none."""
    after = finetune.validation_accuracy
    if not finetune.epochs:
        return f"No training took place: the weights are those after pruning, validation accuracy {percent(after)}."
    choice = finetune.choice
    trained = (
        f"{epochs_words(finetune)} over {counted(finetune.images, 'training image')} on {finetune.device} "
        f"in {count(finetune.seconds)} s: {scores_words(finetune)}."
    )
    return f"{trained} {kept_words(choice)}" if choice and finetune.discarded else trained


def epochs_words(finetune: Finetune) -> str:
    """The number of epochs: ``1 epoch``, ``3 epochs``."""
    return counted(len(finetune.epochs), "epoch")


def scores_words(finetune: Finetune) -> str:
    """What training changed on validation images: accuracy or, without labels, agreement with the original."""
    choice, before = finetune.choice, finetune.baseline_validation_accuracy
    if choice is None:
        return f"validation accuracy {percent(before)} -> {percent(finetune.validation_accuracy)}"
    if choice.after.accuracy is None:
        scores = choice.before.agreement, choice.after.agreement
        return "agreement with the original on validation images " + " -> ".join(map(percent, scores))
    return f"validation accuracy {percent(before)} -> {percent(choice.after.accuracy)}"


def kept_words(choice: Choice) -> str:
    """A statement that the weights from before fine-tuning are kept, with the deciding figures and advice."""
    before, after = choice.before, choice.after
    known = [] if after.accuracy is None else [f"accuracy {percent(before.accuracy)} -> {percent(after.accuracy)}"]
    figures = [
        *known,
        f"agreement with the original {percent(before.agreement)} -> {percent(after.agreement)}",
        f"mean KL {nats(before.mean_kl_nats)} -> {nats(after.mean_kl_nats)}",
    ]
    return (
        f"Fine-tuning did not improve the network on {counted(choice.images, 'validation image')} "
        f"({', '.join(figures)}): the weights from before it are kept. Try a lower learning_rate or another batch_size."
    )


def probe_words(finetune: Finetune) -> str:
    """The learning rates that were tried before the training, and their losses; empty if none were."""
    probe = finetune.probe
    if not probe:
        return ""
    tried = ", ".join(
        f"{rate:.2g} (loss {'not finite' if loss is None else f'{loss:.4g}'})"
        for rate, loss in zip(probe.learning_rates, probe.losses, strict=True)
    )
    return (
        f"Learning rates tried first, for {counted(probe.steps, 'step')} each: {tried}, on training images held "
        f"out from them. Chosen: {probe.chosen:.2g}."
    )
