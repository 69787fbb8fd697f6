"""What cannot be done with images that have no labels, said before anything is computed."""

from collections.abc import Collection

from catro_deploy.errors import SettingsError
from catro_deploy.settings.models import UNLABELLED, Settings

__all__ = ["LABEL_FREE", "require_distillation", "require_label_free_criterion", "require_labels_unneeded"]

LABEL_FREE: frozenset[str] = frozenset({"obs"})
"""The criteria that judge channels by images alone."""


def require_labels_unneeded(stages: Collection[str], settings: Settings) -> None:
    """See to it that ``stages`` can do without labels, if it takes no look at the images to know that there are none.

    Raises:
        SettingsError: one of them needs labels.
    """
    if settings.data.name != UNLABELLED:
        return
    if "prune" in stages:
        require_label_free_criterion(settings)
    if "finetune" in stages:
        require_distillation(settings, settings.finetune.epochs)


def require_label_free_criterion(settings: Settings) -> None:
    """See to it that channels can be chosen without labels.

    Raises:
        SettingsError: the criterion compares classes, or what widths are worth does.
    """
    if settings.prune.criterion not in LABEL_FREE:
        raise SettingsError(
            f"The images have no labels, and the criterion {settings.prune.criterion} needs them.",
            'Choose one that does without: criterion = "obs" ([prune] in catro.toml). Or give labelled images.',
        )
    if settings.prune.worth == "scatter":
        raise SettingsError(
            'The images have no labels, and worth = "scatter" needs them.',
            'Let it be measured: worth = "auto" ([prune] in catro.toml).',
        )


def require_distillation(settings: Settings, epochs: int) -> None:
    """See to it that ``epochs`` of training, if there are any, learn from the original's answers alone.

    Raises:
        SettingsError: labels count in the loss.
    """
    distill = settings.finetune.distill or 0.0  # no recipe teaches by the original alone
    if epochs and distill < 1:
        raise SettingsError(
            f"The images have no labels, and fine-tuning with distill = {distill:g} needs them.",
            "Train without (--epochs 0), or from the original network's answers alone: distill = 1 in [finetune].",
        )
