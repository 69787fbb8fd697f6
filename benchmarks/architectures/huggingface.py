"""Classifiers of Hugging Face transformers by their model type: folders with the configuration of a usual member."""

import json
from pathlib import Path
from typing import Any

__all__ = ["HUGGING_FACE", "SIZE", "model_name"]

PREFIX = "transformers:"
SIZE = 224
# The library's defaults are of members in common use; EfficientNet's, B7, is not, and here it is B0.
KINDS: dict[str, dict[str, Any]] = {
    "bit": {},
    "convnext": {},
    "convnextv2": {},
    "efficientnet": {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
    "hgnet_v2": {},
    "mobilenet_v1": {},
    "mobilenet_v2": {},
    "poolformer": {},
    "regnet": {},
    "resnet": {},
    "textnet": {},
}
HUGGING_FACE = tuple(f"{PREFIX}{kind}" for kind in KINDS)
"""All of its convolutional classifiers that are built."""


def model_name(name: str, work: Path) -> str:
    """The name by which settings build the row ``name``; of transformers, its folder is written below ``work``."""
    if not name.startswith(PREFIX):
        return name
    kind = name.removeprefix(PREFIX)
    folder = work / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **KINDS[kind]}))
    return f"{PREFIX}{folder}"
