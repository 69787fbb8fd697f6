"""Networks by name: ``cifar_resnet20``, ``torchvision:NAME``, ``timm:NAME``, ``transformers:FOLDER``, factories."""

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.factories import load_factory, users_code
from catro_deploy.models.cifar_resnet import cifar_resnet
from catro_deploy.models.huggingface import folder_of, transformers_model
from catro_deploy.models.plain import unwrapped
from catro_deploy.models.zoo import similar_models, timm_model, timm_size, torchvision_model, torchvision_size

__all__ = ["build_model", "library_size"]

CIFAR_DEPTHS = (20, 32, 56, 110)


def build_model(name: str, classes: int, architecture: Mapping[str, Any] | None = None) -> nn.Module:
    """Build the network ``name`` with ``classes`` outputs and random weights, in eval mode.

    A ``package.module:factory`` is called with the number of classes and must return an ``nn.Module``; the working
    folder is on its import path; the network comes without wrappers and in float32. For ``transformers:FOLDER``,
    ``architecture`` replaces the folder's configuration.

    Raises:
        ModelError: the name is unknown or that of a vision transformer, or the factory fails or returns TorchScript.
    """
    cifar = re.fullmatch(r"cifar_resnet(\d+)", name)
    if cifar and int(cifar[1]) in CIFAR_DEPTHS:
        return cifar_resnet(int(cifar[1]), classes).eval()
    library, _, own = name.partition(":")
    if library == "torchvision":
        return torchvision_model(own, classes).eval()
    if library == "timm":
        return timm_model(own, classes).eval()
    if folder := folder_of(name):
        return transformers_model(folder, classes, architecture).eval()
    if ":" in name:
        return _from_factory(name, classes).eval()
    near = similar_models(name, [f"cifar_resnet{depth}" for depth in CIFAR_DEPTHS])
    raise ModelError(
        f"There is no model {name!r}.",
        (f"Did you mean {' or '.join(near)}? " if near else "")
        + f"Known models: cifar_resnet{{{','.join(map(str, CIFAR_DEPTHS))}}}, torchvision:NAME, timm:NAME, "
        "transformers:FOLDER and package.module:factory.",
    )


def library_size(name: str) -> int | None:
    """Height and width at which torchvision or timm trained ``name``; None for any other network.

    Raises:
        ModelError: it is a network of timm, and timm is not installed.
    """
    library, _, architecture = name.partition(":")
    if library == "timm":
        return timm_size(architecture)
    return torchvision_size(architecture) if library == "torchvision" else None


def _from_factory(name: str, classes: int) -> nn.Module:
    form = f"It is called with the number of classes, {classes}, and must return a torch.nn.Module."
    with users_code(name, ModelError, form):
        model = load_factory(name, ModelError)(classes)
    if not isinstance(model, nn.Module):
        raise ModelError(f"The factory {name} returned a {type(model).__name__}.", form)
    return unwrapped(model).float()
