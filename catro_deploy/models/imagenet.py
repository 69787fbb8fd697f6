"""The 1,000 classes of ImageNet: their names from torchvision, their WordNet ids from timm if that is installed."""

from collections.abc import Mapping, Sequence
from typing import Any

from catro_deploy.settings.section import IMAGENET

__all__ = ["IMAGENET_CLASSES", "classes_setting", "imagenet_ids", "imagenet_names"]

IMAGENET_CLASSES = 1000
# Some lists have "crane" twice and an ambiguous "maillot"; the names here have one more word.
DIFFERENT = 10


def imagenet_names() -> tuple[str, ...]:
    """A unique name for each class, in the order of the logits."""
    from torchvision.models import ResNet18_Weights

    return tuple(ResNet18_Weights.IMAGENET1K_V1.meta["categories"])


def imagenet_ids() -> Mapping[str, int]:
    """The index of each WordNet id, such as ``n01440764``; empty without timm, which lists them."""
    try:
        from timm import data
    except ImportError:
        return {}
    info: Any = data.ImageNetInfo("imagenet-1k")  # type: ignore[attr-defined]
    return {name: index for index, name in enumerate(info.label_names())}


def classes_setting(names: Sequence[str]) -> str | list[str | tuple[str, str]]:
    """Convert the ``names`` of classes, in the order of the logits, to the form of ``[model] classes``.

    ImageNet's classes, given as lists of synonyms or by the first synonym, are recognised, and get their ids.
    TensorFlow's networks have a background class before them.
    """
    before = len(names) - IMAGENET_CLASSES
    pairs = list(zip(imagenet_names(), names[before:], strict=True)) if before in (0, 1) else []
    alike = sum(known.lower() == name.partition(",")[0].lower() for known, name in pairs)
    if not pairs or alike < IMAGENET_CLASSES - DIFFERENT:
        return list(names)
    ids = imagenet_ids()
    if before and ids:
        return [(names[0], names[0]), *zip(ids, imagenet_names(), strict=True)]
    return [names[0], *imagenet_names()] if before else IMAGENET
