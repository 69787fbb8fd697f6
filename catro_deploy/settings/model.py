"""``[model]`` and ``[data]``: the network that is pruned, and its images."""

from pathlib import Path
from typing import Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from catro_deploy.settings.pixels import require_unit_pixels
from catro_deploy.settings.section import Section

__all__ = ["DataSettings", "ModelSettings"]


class ModelSettings(Section):
    """``[model]``: the trained classifier."""

    name: str = Field(
        "cifar_resnet20",
        description="Architecture: cifar_resnet{20,32,56,110}, torchvision:NAME, timm:NAME or package.module:factory",
    )
    checkpoint: Path = Field(
        Path("baseline.safetensors"), description="Trained weights: safetensors, or a PyTorch file of tensors only"
    )
    mean: tuple[float, ...] = Field(
        (0.5, 0.5, 0.5), description="Subtracted from pixels in 0..1, per channel; one value means grey images"
    )
    std: tuple[PositiveFloat, ...] = Field(
        (0.25, 0.25, 0.25), description="Pixels are divided by it after the mean is subtracted"
    )

    @model_validator(mode="after")
    def _one_value_a_channel(self) -> Self:
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ValueError("mean and std need three values each, or one each for grey images")
        return self

    @model_validator(mode="after")
    def _pixels_in_0_to_1(self) -> Self:
        require_unit_pixels(self.mean, self.std)
        return self


class DataSettings(Section):
    """``[data]``: the images."""

    name: str = Field(
        "signs",
        description="Dataset: gtsrb, imagefolder, images (without labels), signs (drawn) or package.module:factory",
    )
    root: Path = Field(Path("data"), description="Folder of the images")
    size: PositiveInt | None = Field(
        None,
        description="Images are resized to this height and width; default: the size of the images if all have the "
        "same, else the size that torchvision or timm trained the model at; required otherwise",
    )
    download: bool = Field(False, description="Download the dataset if it is missing (gtsrb)")
    validation: float = Field(0.1, gt=0, lt=1, description="Share of the training set held out for choices")
    seed: NonNegativeInt = Field(0, description="Seed of the validation split and of drawn images")
    groups: dict[str, list[int | str]] = Field(default_factory=dict, description="Named groups of classes")
    classes: list[str] = Field(
        default_factory=list,
        description="images: names of the network's classes, or a text file with one per line; "
        "default: those in the checkpoint, else 0, 1, ...",
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes has a name twice")
        return self
