"""Tensors of a network that its state dict leaves out: buffers that are not persistent, and plain attributes.

A network that is built again may draw other values for them, such as those of a random projection.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

__all__ = ["PREFIX", "constants_of", "differing_constants", "restore_constants_"]

PREFIX = "catro_deploy.constant."
"""Precedes their names in a safetensors file."""


def constants_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Those of ``model`` that a safetensors file can hold, by name with ``PREFIX``."""
    found: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        for key, value in _outside_of_state(module).items():
            if value.layout == torch.strided and not (value.is_quantized or value.is_meta or value.is_complex()):
                found[f"{PREFIX}{name}.{key}" if name else f"{PREFIX}{key}"] = value
    return found


def differing_constants(model: nn.Module, again: nn.Module) -> list[str]:
    """The names of those that differ between ``model`` and the same network, built ``again``: random numbers."""
    mine, theirs = constants_of(model), constants_of(again)
    differing = [name for name in mine if name not in theirs or not torch.equal(mine[name], theirs[name])]
    return [name.removeprefix(PREFIX) for name in differing]


def restore_constants_(model: nn.Module, path: Path) -> None:
    """Give ``model`` those in the file ``path``; a file of another format, or from an earlier version, has none."""
    if path.suffix != ".safetensors":
        return
    modules = dict(model.named_modules())
    with safe_open(path, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 - it is no mapping
            owner, _, attribute = key.removeprefix(PREFIX).rpartition(".")
            if key.startswith(PREFIX) and owner in modules:
                setattr(modules[owner], attribute, file.get_tensor(key))


def _outside_of_state(module: nn.Module) -> Mapping[str, torch.Tensor]:
    buffers = {key: module._buffers[key] for key in module._non_persistent_buffers_set}
    return {key: value for key, value in (buffers | vars(module)).items() if isinstance(value, torch.Tensor)}
