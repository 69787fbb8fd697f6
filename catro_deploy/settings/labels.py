"""What cannot be done with images that have no labels, said before anything is computed."""

from collections.abc import Collection

from catro_deploy.errors import SettingsError
from catro_deploy.settings.prune import PruneSettings
from catro_deploy.settings.section import UNLABELLED
from catro_deploy.settings.training import FinetuneSettings
from catro_deploy.settings.tree import Settings

__all__ = ["require_distillation", "require_labels_unneeded", "require_pruning_without_labels"]


def require_labels_unneeded(stages: Collection[str], settings: Settings) -> None:
    """See to it that ``stages`` can do without labels, if it takes no look at the images to know that there are none.

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
    """See to it that channels and widths can be chosen without labels.

    Every criterion can do without where layers are reconstructed: what a width is worth is then measured, by how far
    the answers move from the original's. Class separation, which is what counts otherwise, takes labels.

    Raises:
        SettingsError: class separation counts.
    """
    if not settings.reconstruct:
        raise SettingsError(
            "The images have no labels, and pruning with reconstruct = false needs them: widths are judged by class "
            "separation.",
            "Leave reconstruct at its default, true ([prune] in catro.toml). Or give labelled images.",
        )
    if settings.worth == "scatter":
        raise SettingsError(
            'The images have no labels, and worth = "scatter" needs them: widths are judged by class separation.',
            'Leave worth at its default, or say worth = "measured" ([prune] in catro.toml). Or give labelled images.',
        )


def require_distillation(settings: FinetuneSettings, epochs: int) -> None:
    """See to it that ``epochs`` of training, if there are any, learn from the original's answers alone.

    That is so where ``distill`` is left open, see ``follow_recipe``.

    Raises:
        SettingsError: labels count in the loss.
    """
    distill = settings.distill
    if epochs and distill is not None and distill < 1:
        raise SettingsError(
            f"The images have no labels, and fine-tuning with distill = {distill:g} needs them.",
            "Leave distill out ([finetune] in catro.toml): the original network's answers alone are then learned. "
            "Or train without (--epochs 0).",
        )
