"""Sizes that modules hold as numbers (``self.width = 64``, ``self.splits = [16, 48]``), which change with the channels.

Such a number is named after its module and attribute, like a parameter: ``layer1.0.width``. It has outputs only, one
for each channel that it counts.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from torch import nn

from catro_deploy.graph.cut.kinds import supports

__all__ = ["layer_widths", "resize_stored_", "sizes_of", "stored_sizes"]

WIDTHS = ("in_channels", "out_channels", "in_features", "out_features", "num_features", "num_channels")
"""Attributes in which torch's layers hold their numbers of channels."""


def sizes_of(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The positive integers, and the lists of them, that ``module`` itself holds, by attribute."""
    found = {}
    for attribute, value in vars(module).items():
        several = value if isinstance(value, list | tuple) else (value,)
        if several and all(type(size) is int and size > 0 for size in several):
            found[attribute] = tuple(several)
    return found


def stored_sizes(model: nn.Module, names: Iterable[str]) -> dict[str, tuple[nn.Module, str]]:
    """Those of ``names`` that are numbers in ``model``, each with its module and attribute."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found = {}
    for name in names:
        owner, _, attribute = name.rpartition(".")
        if owner in modules and attribute in sizes_of(modules[owner]):
            found[name] = modules[owner], attribute
    return found


def layer_widths(model: nn.Module) -> set[str]:
    """Names of the channel counts that the layers in ``model`` hold: a cut changes them with the layers' weights."""
    layers = [(name, vars(module)) for name, module in model.named_modules() if name and supports(module)]
    return {f"{name}.{width}" for name, held in layers for width in WIDTHS if type(held.get(width)) is int}


def resize_stored_(module: nn.Module, attribute: str, kept: Sequence[int]) -> None:
    """Set ``attribute`` to the number of its channels that are ``kept``; for a list, to the number in each part."""
    value = getattr(module, attribute)
    ends = np.cumsum(sizes_of(module)[attribute])
    left = np.bincount(np.searchsorted(ends, kept, side="right"), minlength=len(ends)).tolist()
    setattr(module, attribute, type(value)(left) if isinstance(value, list | tuple) else left[0])
