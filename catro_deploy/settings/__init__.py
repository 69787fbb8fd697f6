"""Settings: the sections of ``catro.toml``, and how they are read."""

from catro_deploy.settings.batches import LARGEST_BATCH, batch_size
from catro_deploy.settings.deploy import (
    BenchSettings,
    BuildSettings,
    ExportSettings,
    ProfileSettings,
    QuantizeSettings,
    VerifySettings,
)
from catro_deploy.settings.loading import load_settings, settings_from_text, settings_text
from catro_deploy.settings.model import DataSettings, ModelSettings
from catro_deploy.settings.prune import PruneSettings
from catro_deploy.settings.recipes import follow_recipe, follow_train_recipe
from catro_deploy.settings.search import SearchSettings
from catro_deploy.settings.section import AUTO, TARGETS_OWN, UNLABELLED
from catro_deploy.settings.training import FinetuneSettings, OptimiserSettings, TrainSettings
from catro_deploy.settings.tree import Settings

__all__ = [
    "AUTO",
    "LARGEST_BATCH",
    "TARGETS_OWN",
    "UNLABELLED",
    "BenchSettings",
    "BuildSettings",
    "DataSettings",
    "ExportSettings",
    "FinetuneSettings",
    "ModelSettings",
    "OptimiserSettings",
    "ProfileSettings",
    "PruneSettings",
    "QuantizeSettings",
    "SearchSettings",
    "Settings",
    "TrainSettings",
    "VerifySettings",
    "batch_size",
    "follow_recipe",
    "follow_train_recipe",
    "load_settings",
    "settings_from_text",
    "settings_text",
]
