"""All settings: the sections of ``catro.toml``."""

from pydantic import Field

from catro_deploy.settings.deploy import (
    BenchSettings,
    BuildSettings,
    ExportSettings,
    ProfileSettings,
    QuantizeSettings,
    VerifySettings,
)
from catro_deploy.settings.model import DataSettings, ModelSettings
from catro_deploy.settings.prune import PruneSettings
from catro_deploy.settings.search import SearchSettings
from catro_deploy.settings.section import Section
from catro_deploy.settings.training import FinetuneSettings, TrainSettings

__all__ = ["Settings"]


class Settings(Section):
    """All sections."""

    model: ModelSettings = Field(default_factory=ModelSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    train: TrainSettings | None = None
    prune: PruneSettings = Field(default_factory=PruneSettings)
    search: SearchSettings = Field(default_factory=SearchSettings)
    finetune: FinetuneSettings = Field(default_factory=FinetuneSettings)
    export: ExportSettings = Field(default_factory=ExportSettings)
    quantize: QuantizeSettings = Field(default_factory=QuantizeSettings)
    build: BuildSettings = Field(default_factory=BuildSettings)
    verify: VerifySettings = Field(default_factory=VerifySettings)
    bench: BenchSettings = Field(default_factory=BenchSettings)
    profile: ProfileSettings = Field(default_factory=ProfileSettings)
