"""Recipes: values of ``[train]`` and ``[finetune]`` for keys that are not given."""

from collections.abc import Mapping
from typing import Any

from catro_deploy.settings.batches import LARGEST_BATCH, batch_size, scaled_rate
from catro_deploy.settings.training import FinetuneSettings, OptimiserSettings, TrainSettings

__all__ = ["RECIPES", "follow_recipe", "follow_train_recipe"]

PAPER = {
    "schedule": "step", "momentum": 0.9, "warmup_epochs": 0.0, "label_smoothing": 0.0, "ema": 0.0, "patience": 0,
    "max_grad_norm": 0.0,
}  # fmt: skip
RECIPES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "train": {"paper": {**PAPER, "epochs": 300, "learning_rate": 0.1}},
    "finetune": {
        "none": {"warmup_epochs": 1.0, "ema": 0.0, "distill": 0.0, "distill_features": 0.0, "max_grad_norm": 0.0},
        "paper": {**PAPER, "epochs": 200, "learning_rate": 0.01, "distill": 0.0, "distill_features": 0.0},
        "fast": {
            "epochs": 60, "schedule": "cosine", "warmup_epochs": 5.0, "ema": 0.998, "distill": 0.5, "compile": True,
            "distill_features": 0.0, "max_grad_norm": 0.0,
        },
        # Without learning_rate and ema: the training derives them from its number of steps (training/gentle.py).
        "gentle": {
            "schedule": "cosine", "warmup_epochs": 0.0, "distill": 0.9, "distill_features": 10.0, "max_grad_norm": 5.0,
        },
    },
}  # fmt: skip
"""Section to recipe to values; ``paper`` is the recipe of arXiv 2110.10921, as far as it is stated there."""

RATES = {"none": 0.05, "fast": 0.1}
TRAIN_RATE = 0.1
"""Learning rates for batches of 128 images; for smaller ones they are scaled."""


def follow_recipe(
    settings: FinetuneSettings, reconstructed: bool, labelled: bool = True, images: int | None = None
) -> FinetuneSettings:
    """``settings`` with missing values from their recipe.

    ``auto`` is ``gentle`` for a network whose layers pruning has ``reconstructed``, and ``none`` otherwise. If images
    are not ``labelled``, every recipe learns from the original alone; with ``distill = 0``, none learns from it. The
    batch size follows from the number of training ``images`` (it is 128 for the paper's recipe, and if that number is
    not known), the learning rate from the batch size.
    """
    name = settings.recipe
    if name == "auto":
        name = "gentle" if reconstructed else "none"
    missing = {key: value for key, value in RECIPES["finetune"][name].items() if getattr(settings, key) is None}
    if "distill" in missing and not labelled:
        missing["distill"] = 1.0
    if settings.distill == 0 and "distill_features" in missing:
        missing["distill_features"] = 0.0
    batch = _batch_size(settings, name, images)
    if settings.learning_rate is None and name in RATES:
        missing["learning_rate"] = scaled_rate(RATES[name], batch)
    return settings.model_copy(update={"recipe": name, **missing, "batch_size": batch})


def follow_train_recipe(settings: TrainSettings, images: int) -> TrainSettings:
    """``settings`` with a batch size for ``images`` training images, and a learning rate for it, if they have none."""
    batch = _batch_size(settings, settings.recipe, images)
    rate = settings.learning_rate or scaled_rate(TRAIN_RATE, batch)
    return settings.model_copy(update={"batch_size": batch, "learning_rate": rate})


def _batch_size(settings: OptimiserSettings, recipe: str, images: int | None) -> int:
    if images is None or recipe == "paper":
        return settings.batch_size or LARGEST_BATCH
    return settings.batch_size or batch_size(images)
