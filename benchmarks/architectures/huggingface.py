"""Classifiers of Hugging Face transformers by model type: folders with the configuration of a common member."""

import json
from pathlib import Path
from typing import Any

__all__ = ["HUGGING_FACE", "SIZE", "model_name"]

PREFIX = "transformers:"
SIZE = 224
# The library's defaults are commonly used members, except for EfficientNet's (B7), which is replaced by B0.
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
"""All convolutional classifiers of the library that are built."""


def model_name(name: str, work: Path) -> str:
    """The model name in settings for the row ``name``; for transformers, its folder is written below ``work``."""
    if not name.startswith(PREFIX):
        return name
    kind = name.removeprefix(PREFIX)
    folder = work / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **KINDS[kind]}))
    return f"{PREFIX}{folder}"
