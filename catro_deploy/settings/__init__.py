"""Settings: the sections of ``catro.toml``, and how they are read."""

from catro_deploy.settings.batches import LARGEST_BATCH, batch_size
from catro_deploy.settings.loading import load_settings, settings_text
from catro_deploy.settings.models import (
    AUTO,
    TARGETS_OWN,
    UNLABELLED,
    BenchSettings,
    DataSettings,
    ExportSettings,
    FinetuneSettings,
    ModelSettings,
    OptimiserSettings,
    ProfileSettings,
    PruneSettings,
    QuantizeSettings,
    Settings,
    TrainSettings,
    VerifySettings,
)
from catro_deploy.settings.recipes import follow_recipe, follow_train_recipe

__all__ = [
    "AUTO",
    "LARGEST_BATCH",
    "TARGETS_OWN",
    "UNLABELLED",
    "BenchSettings",
    "DataSettings",
    "ExportSettings",
    "FinetuneSettings",
    "ModelSettings",
    "OptimiserSettings",
    "ProfileSettings",
    "PruneSettings",
    "QuantizeSettings",
    "Settings",
    "TrainSettings",
    "VerifySettings",
    "batch_size",
    "follow_recipe",
    "follow_train_recipe",
    "load_settings",
    "settings_text",
]
