"""The folders in which budgets and variants are tried, each named by a hash of everything that decides the outcome."""

import json
import math

from catro_deploy.files import text_hash
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.image_stamps import image_stamps
from catro_deploy.stages.outside import deciding
from catro_deploy.stages.table import PRUNE, STAGES

__all__ = ["shortened", "trial_folder"]

# Share of the epochs of the final training that a trial trains for.
SHORT = 0.25
LEAST_EPOCHS = 2


def shortened(settings: Settings) -> Settings:
    """``settings`` with the epochs of a trial: at most those of the final training."""
    epochs = min(settings.finetune.epochs, max(LEAST_EPOCHS, math.ceil(SHORT * settings.finetune.epochs)))
    return settings.model_copy(update={"finetune": settings.finetune.model_copy(update={"epochs": epochs})})


def trial_folder(settings: Settings, run: RunFolder) -> RunFolder:
    """The folder in which the pruning of ``settings`` is tried; other settings or another checkpoint never share it.

    After the trial it contains point.json and, if a network met the budget, plan.json and pruned.safetensors.
    """
    (pruning,) = [stage for stage in STAGES if stage.name == PRUNE]
    tried = shortened(settings)
    decides = {
        "settings": {section: deciding(tried, section) for section in (*pruning.sections, "finetune")},
        "outside": dict(pruning.outside(tried)),
        "images": image_stamps(tried, pruning.splits),
    }
    return RunFolder(run.searched / text_hash(json.dumps(decides, sort_keys=True, default=str))[:12])
