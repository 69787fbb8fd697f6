"""A network that resizes its images before its first layer.

It takes the same images as the network did before, so that nothing around it changes, but computes on smaller ones.
"""

import copy
from typing import TypeVar

import torch
from torch import fx, nn
from torch.nn import functional

__all__ = ["resizing"]

MODE = "bilinear"
"""Without antialiasing, which TensorRT does not support."""

_Model = TypeVar("_Model", bound=nn.Module)


def resizing(model: nn.Module, size: tuple[int, int]) -> nn.Module:
    """A copy of ``model`` that first resizes images (n, channels, height, width) to ``size`` (height, width).

    Modules and weights keep their names.
    """
    copied = copy.deepcopy(model)
    if isinstance(copied, fx.GraphModule):
        return _with_node(copied, size)
    copied.__class__ = _subclass(type(copied), size)
    return copied


def _subclass(kind: type[_Model], size: tuple[int, int]) -> type[_Model]:
    class Resizing(kind):  # type: ignore[valid-type, misc]
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = super().forward(functional.interpolate(images, size=size, mode=MODE))
            return found

    Resizing.__name__, Resizing.__qualname__, Resizing.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Resizing


def _with_node(module: fx.GraphModule, size: tuple[int, int]) -> fx.GraphModule:
    (images,) = module.graph.find_nodes(op="placeholder")
    with module.graph.inserting_after(images):
        resized = module.graph.call_function(functional.interpolate, (images,), {"size": size, "mode": MODE})
    images.replace_all_uses_with(resized, delete_user_cb=lambda user: user is not resized)
    module.recompile()
    return module
