"""The 1,000 classes of ImageNet: their names from torchvision, their WordNet ids from timm if that is installed."""

from collections.abc import Mapping
from typing import Any

__all__ = ["IMAGENET_CLASSES", "imagenet_ids", "imagenet_names"]

IMAGENET_CLASSES = 1000


def imagenet_names() -> tuple[str, ...]:
    """One name for each class, no two alike, in the order of the logits."""
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
