"""Checks that settings suit images without labels, made before anything is computed."""

from collections.abc import Collection

from catro_deploy.errors import SettingsError
from catro_deploy.settings.prune import PruneSettings
from catro_deploy.settings.section import UNLABELLED
from catro_deploy.settings.training import FinetuneSettings
from catro_deploy.settings.tree import Settings

__all__ = ["require_distillation", "require_labels_unneeded", "require_pruning_without_labels"]


def require_labels_unneeded(stages: Collection[str], settings: Settings) -> None:
    """Check that ``stages`` need no labels, if the settings show that the images have none.

    Raises:
        SettingsError: one of them needs labels.
    """
    if settings.data.name != UNLABELLED:
        return
    if "prune" in stages:
        require_pruning_without_labels(settings.prune)
    if "finetune" in stages:
        require_distillation(settings.finetune, settings.finetune.epochs)
    if "quantize" in stages:
        require_distillation(settings.finetune, settings.quantize.qat_epochs)


def require_pruning_without_labels(settings: PruneSettings) -> None:
    """Check that channels and widths can be chosen without labels.

    No criterion needs them if layers are reconstructed: the worth of a width is then the measured divergence from the
    original's outputs. Class separation needs labels.

    Raises:
        SettingsError: class separation is used.
    """
    if not settings.reconstruct:
        raise SettingsError(
            "The images have no labels, and pruning with reconstruct = false needs them: widths are scored by class "
            "separation.",
            "Leave reconstruct at its default, true ([prune] in catro.toml). Or give labelled images.",
        )
    if settings.worth == "scatter":
        raise SettingsError(
            'The images have no labels, and worth = "scatter" needs them: widths are scored by class separation.',
            'Leave worth at its default, or set worth = "measured" ([prune] in catro.toml). Or give labelled images.',
        )


def require_distillation(settings: FinetuneSettings, epochs: int) -> None:
    """Check that ``epochs`` of training, if any, learn from the original's outputs alone.

    That is the default of ``distill``, see ``follow_recipe``.

    Raises:
        SettingsError: the loss uses labels.
    """
    distill = settings.distill
    if epochs and distill is not None and distill < 1:
        raise SettingsError(
            f"The images have no labels, and fine-tuning with distill = {distill:g} needs them.",
            "Leave distill out ([finetune] in catro.toml): the network then learns from the original's outputs alone. "
            "Or do not train (--epochs 0).",
        )
