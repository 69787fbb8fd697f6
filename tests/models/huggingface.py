"""Folders as saved by Hugging Face transformers, for small networks with random weights."""

import json
from pathlib import Path

import pytest
import torch

SMALL = {
    "bit": {"embedding_size": 16, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1], "num_groups": 8},
    "convnext": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
    "convnextv2": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.3, "image_size": 64, "hidden_dim": 320},
    "hgnet_v2": {"stage_numb_of_layers": [2, 2, 2, 2], "stage_num_blocks": [1, 1, 1, 1]},
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilenet_v2": {"depth_multiplier": 0.25},
    "poolformer": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
    "regnet": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1], "groups_width": 16, "embedding_size": 16},
    "resnet": {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1], "embedding_size": 16},
    "textnet": {"hidden_sizes": [16, 16, 32, 32, 48], "stem_out_channels": 16, "image_size": [64, 64]},
}
"""Configuration values that make a small version of every convolutional classifier in transformers."""

PREPROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.3, 0.25],
}


def save_network(folder: Path, kind: str = "resnet", names: tuple[str, ...] = ("first", "second", "third")):
    """Write config.json, model.safetensors and preprocessor_config.json to ``folder``; return transformers' network."""
    transformers = pytest.importorskip("transformers")
    ids = {name: index for index, name in enumerate(names)}
    config = transformers.AutoConfig.for_model(kind, id2label=dict(enumerate(names)), label2id=ids, **SMALL[kind])
    torch.manual_seed(0)
    network = transformers.AutoModelForImageClassification.from_config(config)
    network.save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    return network.eval()


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def change_json(path: Path, **changes: object) -> None:
    write_json(path, json.loads(path.read_text()) | changes)
