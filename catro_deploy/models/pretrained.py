"""Pretrained weights of torchvision, timm and transformers: their file, and how their images were prepared."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy.errors import ModelError
from catro_deploy.models.huggingface import (
    class_names,
    folder_of,
    read_architecture,
    require_cnn,
    transformers_library,
    weights_file,
)
from catro_deploy.models.imagenet import IMAGENET_CLASSES, classes_setting
from catro_deploy.models.preprocessor import preparation
from catro_deploy.models.zoo import require_known, timm_library
from catro_deploy.settings.section import IMAGENET
from catro_deploy.suggestions import did_you_mean

__all__ = ["Pretrained", "fetch", "pretrained"]

# These networks normalise their input again, so these are the effective values of their training.
INCEPTIONS = ("googlenet", "inception_v3")
INCEPTION_VALUES = (0.5, 0.5, 0.5)
HUB_FILE = "model.safetensors"


@dataclass(frozen=True)
class Pretrained:
    """Weights of a library and the preprocessing that they were trained with.

    Attributes:
        weights: their full name.
        url: where they are published; empty if they are in a user's folder.
        file: where the library keeps them once they are downloaded.
        size: height and width of the network's input.
        resize: the shorter side, or height and width, that images are resized to before the centre crop; None: they are
            resized to ``size``.
        interpolation: how they are resized.
        mean: of pixels in 0..1, one value per channel.
        std: likewise.
        classes: those of the logits, in the form of ``[model] classes``: ImageNet's, their number, or names; None:
            unknown.
        accuracy: on ImageNet's validation images, as published, a fraction; None if it is unknown.
    """

    weights: str
    url: str
    file: Path
    size: tuple[int, int]
    resize: int | tuple[int, int] | None
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: int | str | list[str | tuple[str, str]] | None
    accuracy: float | None


def pretrained(name: str, weights: str | None) -> Pretrained:
    """The ``weights`` of the model ``name``; ``DEFAULT`` are those that the library prefers. Nothing is downloaded.

    A model ``transformers:FOLDER`` has only the weights in its folder.

    Raises:
        ModelError: the model is not from a library, or has no such weights.
    """
    library, _, architecture = name.partition(":")
    folder = folder_of(name)
    if folder is not None and weights is None:
        return _of_transformers(folder)
    if library == "torchvision" and weights is not None:
        return _of_torchvision(architecture, weights)
    if library == "timm" and weights is not None:
        return _of_timm(architecture, weights)
    raise ModelError(
        f"[model] weights = {weights!r} names weights of torchvision or timm; the model is {name}.",
        "Give the file of its weights instead: [model] checkpoint."
        if folder is None
        else "Leave weights out: those in the folder are used.",
    )


def fetch(found: Pretrained) -> Path:
    """The file of the weights, downloaded if the library's cache does not have it.

    Raises:
        ModelError: it cannot be downloaded.
    """
    if found.file.is_file() or not found.url:
        return found.file
    import torch

    with _offline(found):
        found.file.parent.mkdir(parents=True, exist_ok=True)
        part = found.file.with_name(f"{found.file.name}.part")
        torch.hub.download_url_to_file(found.url, str(part), hash_prefix=_hash_prefix(found.file), progress=False)
        part.replace(found.file)
    return found.file


def _of_torchvision(architecture: str, weights: str) -> Pretrained:
    from torchvision.models import get_model_weights

    require_known("torchvision", architecture)
    known = get_model_weights(architecture).__members__
    if weights not in known:
        meant = did_you_mean(weights, [*known, "DEFAULT"], otherwise=f"It has: {', '.join(known)}")
        raise ModelError(f"torchvision:{architecture} has no weights {weights!r}.", meant)
    found = known[weights]
    if not found.meta["categories"]:
        raise ModelError(
            f"The weights {weights} of torchvision:{architecture} are not of a classifier: they have features only.",
            "Choose other weights, or train a classifier on them first.",
        )
    form: Any = found.transforms()
    (crop,), (resize,) = form.crop_size, form.resize_size
    inception = architecture in INCEPTIONS
    metrics = found.meta["_metrics"].get("ImageNet-1K", {})
    return Pretrained(
        weights=found.name,
        url=found.url,
        file=_torch_file(found.url),
        size=(crop, crop),
        resize=resize,
        interpolation=form.interpolation.value,
        mean=INCEPTION_VALUES if inception else tuple(form.mean),
        std=INCEPTION_VALUES if inception else tuple(form.std),
        classes=_counted(len(found.meta["categories"])),
        accuracy=metrics["acc@1"] / 100 if "acc@1" in metrics else None,
    )


def _of_timm(name: str, weights: str) -> Pretrained:
    timm = timm_library()
    architecture, _, own = name.partition(".")
    require_known("timm", architecture)
    tag = own if weights == "DEFAULT" else weights
    known = [one.partition(".")[2] for one in timm.list_pretrained(f"{architecture}.*")]
    if not known or (tag and tag not in known):
        meant = did_you_mean(weights, known, otherwise=f"It has: {', '.join(known) or 'none'}")
        raise ModelError(f"timm:{architecture} has no weights {weights!r}.", meant)
    config = timm.models.get_pretrained_cfg(f"{architecture}.{tag}" if tag else architecture)
    _, *size = config.input_size
    if config.crop_mode == "border" or (size[0] != size[1] and config.crop_mode != "squash"):
        raise ModelError(
            f"Images of timm:{architecture}.{config.tag} are prepared in a way that settings cannot express.",
            "Prepare them beforehand, and set checkpoint, mean, std and size instead of weights.",
        )
    sides = [math.floor(side / config.crop_pct) for side in size]
    squashed = None if sides == size else (sides[0], sides[1])
    url, file = _hub_file(config.hf_hub_id) if config.hf_hub_id else (config.url, _torch_file(config.url))
    return Pretrained(
        weights=config.tag or weights,
        url=url,
        file=file,
        size=(size[0], size[1]),
        resize=squashed if config.crop_mode == "squash" else sides[0],
        interpolation=config.interpolation,
        mean=tuple(config.mean),
        std=tuple(config.std),
        classes=_counted(config.num_classes),
        accuracy=None,
    )


def _of_transformers(folder: Path) -> Pretrained:
    transformers_library()
    require_cnn(read_architecture(folder), folder)
    file, names = weights_file(folder), class_names(folder)
    return Pretrained(
        weights=file.name,
        url="",
        file=file,
        **vars(preparation(folder)),
        classes=classes_setting(names) if names else None,
        accuracy=None,
    )


def _counted(classes: int) -> int | str:
    """The classes of a library's weights, from their number; 1,000 are ImageNet's."""
    return IMAGENET if classes == IMAGENET_CLASSES else classes


def _torch_file(url: str, name: str = "") -> Path:
    """The file in which torch.hub keeps a download from ``url``."""
    import torch

    return Path(torch.hub.get_dir()) / "checkpoints" / (name or Path(url).name)


def _hub_file(repository: str) -> tuple[str, Path]:
    """The URL of the weights in a repository of the Hugging Face Hub, and their local file."""
    from huggingface_hub import hf_hub_url, try_to_load_from_cache

    url, cached = hf_hub_url(repository, HUB_FILE), try_to_load_from_cache(repository, HUB_FILE)
    own = _torch_file(url, f"{repository.rpartition('/')[2]}.safetensors")
    return url, Path(cached) if isinstance(cached, str) else own


def _hash_prefix(file: Path) -> str | None:
    """The prefix of the SHA-256 checksum in a torch file's name (``resnet50-11ad3fa6.pth``); None if there is none."""
    found = file.stem.rpartition("-")[2]
    return found if file.suffix == ".pth" and len(found) == 8 else None


@contextlib.contextmanager
def _offline(found: Pretrained) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # no network, or a wrong checksum
        raise ModelError(
            f"The weights {found.weights} cannot be downloaded from {found.url}: {error}.",
            f"Download them elsewhere, and put them at {found.file}, or set [model] checkpoint to where they are.",
        ) from None
