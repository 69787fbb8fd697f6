"""Settings: the sections of ``catro.toml``, and how they are read."""

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

__all__ = [
    "AUTO",
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
    "load_settings",
    "settings_text",
]
