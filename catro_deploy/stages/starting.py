"""A first ``catro.toml``, derived from a network, its weights and a folder of images."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catro_deploy.data.listing import image_files
from catro_deploy.data.webdataset import shards_in
from catro_deploy.errors import DataError, ModelError
from catro_deploy.models.classes import count_logits
from catro_deploy.models.huggingface import folder_of
from catro_deploy.models.imagenet import IMAGENET_CLASSES
from catro_deploy.models.pretrained import Pretrained, pretrained
from catro_deploy.report.images import resizing_words
from catro_deploy.settings import load_settings
from catro_deploy.settings.section import IMAGENET, UNLABELLED
from catro_deploy.stages.images import classes_with_images, open_images_of
from catro_deploy.stages.pretrained import with_preprocessing
from catro_deploy.stages.sizes import sized
from catro_deploy.units import counted

__all__ = ["Start", "start_from"]

LIBRARIES = ("torchvision:", "timm:")
IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NAMES_SHOWN = 8


@dataclass
class Start:
    """Initial settings by section, and what was ``assumed``, as sentences.

    ``mirrors`` says whether images may be mirrored: traffic signs may not.
    """

    sections: dict[str, dict[str, Any]] = field(default_factory=lambda: {"model": {}, "data": {}})
    assumed: list[str] = field(default_factory=list)
    mirrors: bool = True


def start_from(model: str, checkpoint: Path | None, weights: str | None, root: Path, size: str | None = None) -> Start:
    """Inspect the network and the images in ``root``; without a ``checkpoint`` its library's ``weights`` are used.

    Raises:
        ModelError: the model or its weights are not known, or it has no weights of a library and no checkpoint.
        CheckpointError: the checkpoint does not exist, or is damaged.
        DataError: the folder does not exist, or its classes are not the network's.
    """
    start = Start()
    if size is not None:
        start.sections["data"]["size"] = size
    _look_at_model_(start, model, checkpoint, weights)
    _look_at_images_(start, root)
    if checkpoint is not None and start.sections["data"]["name"] != UNLABELLED:
        _compare_classes_(start, model, checkpoint, root)
    settings = with_preprocessing(load_settings(None, start.sections))
    height, width = sized(settings)
    if start.sections["data"]["name"] != UNLABELLED:
        dataset = open_images_of(settings, (height, width))
        found = [dataset.classes[index] for index in classes_with_images(dataset)]
        more = f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
        of_all = f" of the network's {len(dataset.classes)}" if len(found) < len(dataset.classes) else ""
        number, verb = counted(len(found), "class", "classes"), "is" if len(found) == 1 else "are"
        start.assumed.append(f"{number}{of_all} {verb} wanted: {', '.join(found[:NAMES_SHOWN])}{more}.")
    how = "" if settings.data.resize is None else f" ({resizing_words(settings.data.resize)})"
    start.assumed.append(f"The network gets images of {height}x{width}{how}.")
    if start.mirrors:
        start.assumed.append("An image that is mirrored left to right still shows its class.")
    return start


def _look_at_model_(start: Start, model: str, checkpoint: Path | None, weights: str | None) -> None:
    section = start.sections["model"]
    section["name"] = model
    if folder := folder_of(model):
        start.assumed.append(f"Images are prepared, and normalised, as the image processor in {folder} does it.")
    elif found := _weights_of(model, checkpoint, weights):
        section["weights"] = found.weights
        start.assumed.append(f"Images are prepared, and normalised, as for the weights {found.weights} of {model}.")
    elif checkpoint is None:
        raise ModelError(
            f"{model} is not a network of torchvision or timm, so its weights are not known.",
            "Give their file: --checkpoint model.pth",
        )
    else:
        section |= {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
        start.assumed.append("Images were normalised with ImageNet's mean and standard deviation during training.")
    if checkpoint is not None:
        section["checkpoint"] = str(checkpoint)


def _weights_of(model: str, checkpoint: Path | None, weights: str | None) -> Pretrained | None:
    """The library's weights; None if there are none and none are needed."""
    if not model.startswith(LIBRARIES):
        return None
    try:
        return pretrained(model, weights or "DEFAULT")
    except ModelError:
        if checkpoint is None or weights is not None:
            raise
        return None


def _look_at_images_(start: Start, root: Path) -> None:
    section = start.sections["data"]
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.", "Give the folder that holds the images: --data-root photos")
    if (root / "gtsrb").is_dir():
        section["name"], start.mirrors = "gtsrb", False
    elif shards_in(root, "train"):
        section["name"] = "webdataset"
    elif (root / "train").is_dir():
        section["name"] = "imagefolder"
    elif image_files(root):
        section["name"] = UNLABELLED
        start.assumed.append(
            "The images have no labels, since there is no train/ with a folder for each class: the pruned network is "
            "evaluated by its agreement with the original."
        )
    else:
        raise DataError(
            f"There are no images in {root}.",
            f"Expected {root}/train/<class>/* and {root}/val/<class>/*, or images without labels.",
        )
    section["root"] = str(root)


def _compare_classes_(start: Start, model: str, checkpoint: Path, root: Path) -> None:
    """Set the network's classes, unless it has as many as the data."""
    logits = count_logits(model, checkpoint)
    own = load_settings(None, {**start.sections, "model": {"name": model}})
    if logits == len(open_images_of(own, (1, 1)).classes):
        start.assumed.append(f"The network's {logits} outputs are the classes in {root}, in the order of their names.")
    elif logits == IMAGENET_CLASSES:
        start.sections["model"]["classes"] = IMAGENET
        start.assumed.append("The network's 1,000 outputs are the classes of ImageNet.")
    else:
        start.sections["model"]["classes"] = logits
        start.assumed.append(
            f"The network has {logits} outputs, but {root} has another number of classes: its folders are named by the "
            "index of their output. Otherwise set [model] classes to a file of names, in the order of the outputs."
        )
