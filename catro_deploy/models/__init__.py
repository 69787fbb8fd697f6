"""Names to networks: ``cifar_resnet20``, ``torchvision:resnet50``, ``package.module:factory``."""

import difflib
import re

from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.factories import load_factory, users_code
from catro_deploy.models.cifar_resnet import cifar_resnet

__all__ = ["build_model", "default_size"]

CIFAR_DEPTHS = (20, 32, 56, 110)


def build_model(name: str, classes: int) -> nn.Module:
    """Build the network ``name`` with ``classes`` outputs, in eval mode, its weights random.

    A ``package.module:factory`` is called with the number of classes and must return an ``nn.Module``; the working
    folder is on its import path.

    Raises:
        ModelError: the name is not known, or the factory fails.
    """
    cifar = re.fullmatch(r"cifar_resnet(\d+)", name)
    if cifar and int(cifar[1]) in CIFAR_DEPTHS:
        return cifar_resnet(int(cifar[1]), classes).eval()
    if name.startswith("torchvision:"):
        return _torchvision(name.partition(":")[2], classes).eval()
    if ":" in name:
        return _from_factory(name, classes).eval()
    raise ModelError(
        f"There is no model {name!r}.",
        f"Known are cifar_resnet{{{','.join(map(str, CIFAR_DEPTHS))}}}, torchvision:NAME and package.module:factory.",
    )


def default_size(name: str) -> tuple[int, int]:
    """Height and width that ``name`` was made for."""
    return (224, 224) if name.startswith("torchvision:") else (32, 32)


def _torchvision(name: str, classes: int) -> nn.Module:
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        raise ModelError(
            f"torchvision has no classifier {name!r}.",
            f"Did you mean {' or '.join(near)}?" if near else f"It has: {', '.join(known)}",
        )
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=classes, **options)
    return model


def _from_factory(name: str, classes: int) -> nn.Module:
    form = f"It is called with the number of classes, {classes}, and must return a torch.nn.Module."
    with users_code(name, ModelError, form):
        model = load_factory(name)(classes)
    if not isinstance(model, nn.Module):
        raise ModelError(f"The factory {name} returned a {type(model).__name__}.", form)
    return model
