"""The folders in which budgets and variants are tried, each named after all that decides the outcome."""

import json
import math

from catro_deploy.files import text_hash
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.outside import deciding
from catro_deploy.stages.table import PRUNE, STAGES

__all__ = ["shortened", "trial_folder"]

# Share of the final epochs that a trial trains for.
SHORT = 0.25
LEAST_EPOCHS = 2


def shortened(settings: Settings) -> Settings:
    """``settings`` with the epochs of a trial: at most the final ones."""
    epochs = min(settings.finetune.epochs, max(LEAST_EPOCHS, math.ceil(SHORT * settings.finetune.epochs)))
    return settings.model_copy(update={"finetune": settings.finetune.model_copy(update={"epochs": epochs})})


def trial_folder(settings: Settings, run: RunFolder) -> RunFolder:
    """Where the pruning of ``settings`` is tried: never that of other settings or of another checkpoint.

    Once the trial has ended, its point.json is there, and its plan.json and pruned.safetensors if a network met the
    budget.
    """
    (pruning,) = [stage for stage in STAGES if stage.name == PRUNE]
    tried = shortened(settings)
    decides = {
        "settings": {section: deciding(tried, section) for section in (*pruning.sections, "finetune")},
        "outside": dict(pruning.outside(tried)),
    }
    return RunFolder(run.searched / text_hash(json.dumps(decides, sort_keys=True, default=str))[:12])
