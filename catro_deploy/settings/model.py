"""``[model]`` and ``[data]``: the network that is pruned, and its images."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import Ge
from pydantic import Field, NonNegativeInt, model_validator

from catro_deploy.settings.pixels import SMALLEST_STD, require_unit_pixels
from catro_deploy.settings.section import TRANSFORMERS, Section
from catro_deploy.settings.sides import ResizeSetting, SizeSetting

__all__ = ["DataSettings", "ModelSettings"]


class ModelSettings(Section):
    """``[model]``: the trained classifier."""

    name: str = Field(
        "cifar_resnet20",
        description="Architecture: cifar_resnet{20,32,56,110}, torchvision:NAME, timm:NAME, package.module:factory, or "
        "transformers:FOLDER, a folder of Hugging Face transformers with config.json, preprocessor_config.json and "
        "weights; it determines the same settings as the key weights",
    )
    checkpoint: Path = Field(
        Path("baseline.safetensors"), description="Trained weights: safetensors, or a PyTorch file of tensors only"
    )
    weights: str | None = Field(
        None,
        description="Name of pretrained weights of torchvision or timm (IMAGENET1K_V2, DEFAULT, a1_in1k): they "
        "determine preprocessing, classes and checkpoint if these are not set",
    )
    classes: int | str | list[str | tuple[str, str]] | None = Field(
        None,
        description="Classes of the network, in the order of its logits: imagenet1k, their number, names, [id, "
        "name] pairs, or a file of them (one per line, or JSON of index to name); default: those of the data",
    )
    mean: tuple[float, ...] = Field(
        (0.5, 0.5, 0.5), description="Subtracted from pixels in 0..1, per channel; one value means grey images"
    )
    std: tuple[Annotated[float, Ge(SMALLEST_STD)], ...] = Field(
        (0.25, 0.25, 0.25), description="Pixels are divided by it after the mean is subtracted"
    )

    @property
    def has_preprocessing(self) -> bool:
        """Whether preprocessing, classes and checkpoint follow from published weights if they are not set."""
        return self.weights is not None or self.name.startswith(TRANSFORMERS)

    @model_validator(mode="after")
    def _one_value_a_channel(self) -> Self:
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ValueError("mean and std need three values each, or one each for grey images")
        return self

    @model_validator(mode="after")
    def _classes_differ(self) -> Self:
        listed = self.classes if isinstance(self.classes, list) else []
        names = [one if isinstance(one, str) else one[1] for one in listed]
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise ValueError(f"classes has {twice[0]!r} more than once")
        if isinstance(self.classes, int) and self.classes < 1:
            raise ValueError("classes is less than 1")
        return self

    @model_validator(mode="after")
    def _pixels_in_0_to_1(self) -> Self:
        require_unit_pixels(self.mean, self.std)
        return self


class DataSettings(Section):
    """``[data]``: the images."""

    name: str = Field(
        "signs",
        description="Dataset: gtsrb, imagefolder, images (without labels), signs (drawn), webdataset or "
        "package.module:factory",
    )
    root: Path = Field(Path("data"), description="Folder of the images")
    size: SizeSetting | None = Field(
        None,
        description="Height and width of the network's input, 224 or 160x224; default: the size of the images if all "
        "have the same size, else the size at which torchvision or timm trained the model; required otherwise",
    )
    resize: ResizeSetting | None = Field(
        None,
        description="Shorter side, or height and width, that images are resized to before a centre crop of the given "
        "size; default: images are resized to the size itself",
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = Field(
        "bilinear", description="Interpolation for resizing images"
    )
    download: bool = Field(False, description="Download the dataset if it is missing (gtsrb)")
    skip_corrupt: bool = Field(
        False,
        description="Skip image files that cannot be decoded, and list them; default: such a file is an error",
        exclude_if=lambda skip: not skip,
    )
    workers: NonNegativeInt | None = Field(
        None,
        description="Number of processes that decode images for training if the images do not fit into memory; 0: "
        "threads; default: one per processor core, at most 8",
        exclude_if=lambda workers: workers is None,
    )
    validation: float = Field(0.1, gt=0, lt=1, description="Share of the training set held out as validation images")
    seed: NonNegativeInt = Field(0, description="Seed of the validation split and of drawn images")
    groups: dict[str, list[int | str]] = Field(default_factory=dict, description="Named groups of classes")
    labels: dict[str, int | str] = Field(
        default_factory=dict,
        description="Class of the network, by name, id or index, for each class of the data that has a different name; "
        "or a file of two columns",
    )

    @model_validator(mode="after")
    def _crops_fit(self) -> Self:
        if self.resize is not None and self.size is not None:
            shorter = min(self.size)
            height, width = (self.resize, self.resize) if isinstance(self.resize, int) else self.resize
            least = (shorter, shorter) if isinstance(self.resize, int) else self.size
            if height < least[0] or width < least[1]:
                raise ValueError("resize is smaller than size, which is cropped from it")
        return self
