"""How the pruned network was fine-tuned, in words."""

from collections.abc import Mapping
from typing import Any

from catro_deploy.report.wording import count, percent

__all__ = ["finetuning_words", "probe_words"]


def finetuning_words(finetune: Mapping[str, Any]) -> str:
    """What finetune.json says of the training as a whole; that there was none, if so."""
    before, after = finetune["baseline_validation_accuracy"], finetune["validation_accuracy"]
    epochs = len(finetune["epochs"])
    if not epochs:
        return f"No training took place: the weights are those of the pruning, validation accuracy {percent(after)}."
    return (
        f"{epochs} epoch{'' if epochs == 1 else 's'} over {count(finetune['images'])} images on {finetune['device']} "
        f"in {count(finetune['seconds'])} s: validation accuracy {percent(before)} before, {percent(after)} after."
    )


def probe_words(finetune: Mapping[str, Any]) -> str:
    """Which learning rates were tried before the training, and how they did; empty if none were."""
    probe = finetune.get("probe")
    if not probe:
        return ""
    tried = ", ".join(
        f"{rate:.2g} (loss {'not finite' if loss is None else f'{loss:.4g}'})"
        for rate, loss in zip(probe["learning_rates"], probe["losses"], strict=True)
    )
    return (
        f"Learning rates tried before, for {probe['steps']} steps each: {tried}, on training images held out from "
        f"them. Chosen: {probe['chosen']:.2g}."
    )
