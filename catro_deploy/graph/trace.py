"""A module's layers with their shapes, and the groups of channels that hang together.

Which channels hang together is torch-pruning's DependencyGraph to say; its pruners are not used. What it finds is
written down as index maps, so that a plan can be applied and read again without it.
"""

import warnings
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.surgery import supports
from catro_deploy.records import Group, Layer, Slot

__all__ = ["Network", "list_layers", "trace"]

PRODUCERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


@dataclass(frozen=True)
class Network:
    """Layers in the order of execution, groups in the order of their first producer, and the layer of the logits.

    ``sizes`` holds (out, in) channels of every module that has them; ``input_shape`` is that of one image (channels,
    height, width).
    """

    layers: tuple[Layer, ...]
    groups: tuple[Group, ...]
    head: str
    sizes: dict[str, tuple[int, int]]
    input_shape: tuple[int, int, int]

    def without(self, modules: Container[str]) -> "Network":
        """The same network after ``modules`` are gone: groups lose their slots there, or go if they have no others."""
        groups = []
        for group in self.groups:
            slots = tuple(slot for slot in group.slots if slot.module not in modules)
            producers = tuple(name for name in group.producers if name not in modules)
            if producers:
                groups.append(replace(group, slots=slots, producers=producers))
        layers = tuple(layer for layer in self.layers if layer.name not in modules)
        sizes = {name: size for name, size in self.sizes.items() if name not in modules}
        return Network(layers, tuple(groups), self.head, sizes, self.input_shape)


def trace(model: nn.Module, input_shape: tuple[int, int, int], ignore: Sequence[str] = ()) -> Network:
    """Find the layers and groups of ``model`` for images of ``input_shape`` (channels, height, width).

    Channels of the modules in ``ignore`` (names or their prefixes) stay as they are, as do those of the logits and of
    modules that cannot be cut; such groups carry the reason in ``fixed``.

    Raises:
        ModelError: the model fails on such images, or a name in ``ignore`` is not there.
    """
    modules = dict(model.named_modules())
    for name in ignore:
        if name not in modules:
            raise ModelError(
                f"The model has no module {name!r} to ignore.", f"It has: {', '.join(list(modules)[1:20])} ..."
            )
    layers = list_layers(model, input_shape)
    head = layers[-1].name
    order = {layer.name: place for place, layer in enumerate(layers)}
    groups = [_fix(group, modules, head, ignore) for group in _groups(model, input_shape, order)]
    groups.sort(key=lambda group: order[group.producers[0]])
    sizes = {name: _size(module) for name, module in modules.items()}
    return Network(tuple(layers), tuple(groups), head, sizes, input_shape)


def list_layers(model: nn.Module, input_shape: tuple[int, int, int]) -> list[Layer]:
    """Run ``model`` once and list its convolutions and linear layers in the order of execution.

    Raises:
        ModelError: the model fails on such images, or has no such layer.
    """
    found: list[Layer] = []

    def record(name: str, module: nn.Module, output: torch.Tensor) -> None:
        out, inputs = _size(module)
        weight = module.get_parameter("weight")
        positions = output[0].numel() // out
        stride = int(max(getattr(module, "stride", (1,))))
        groups = int(getattr(module, "groups", 1))
        found.append(Layer(name, positions, weight[0, 0].numel(), inputs, out, groups, stride))

    hooks = [
        module.register_forward_hook(lambda m, _, output, name=name: record(name, m, output))
        for name, module in model.named_modules()
        if isinstance(module, PRODUCERS)
    ]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *input_shape, device=next(model.parameters()).device))
    except Exception as error:  # whatever a user's forward may raise
        raise ModelError(
            f"The model fails on an image of shape {input_shape}: {type(error).__name__}: {error}",
            "Check [data] size, and that [model] mean has one value for each colour channel.",
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise ModelError("The model has no convolution or linear layer.", "There is nothing to prune in it.")
    return found


def _groups(model: nn.Module, input_shape: tuple[int, int, int], order: dict[str, int]) -> list[Group]:
    import torch_pruning

    example = torch.zeros(1, *input_shape, device=next(model.parameters()).device)
    names = {module: name for name, module in model.named_modules()}
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")  # torch-pruning warns of parameters outside modules; we fix their groups below
        try:
            graph = torch_pruning.DependencyGraph().build_dependency(model, (example,), verbose=False)
            found = list(graph.get_all_groups(root_module_types=PRODUCERS))
        except Exception as error:  # it raises whatever its index arithmetic runs into
            raise ModelError(
                f"torch-pruning cannot follow the channels of {type(model).__name__}: {type(error).__name__}: {error}",
                "Channel shuffles and unusual reshapes are not supported yet.",
            ) from error
    groups = []
    for items in found:
        slots: list[Slot] = []
        unknown = ""
        for item in items.items:
            target = item.dep.target
            if target.module in names:
                axis: Literal["out", "in"] = "out" if graph.is_out_channel_pruning_fn(item.dep.handler) else "in"
                slots.append(Slot(names[target.module], axis, tuple(item.idxs), tuple(item.root_idxs)))
            elif isinstance(target.module, nn.Parameter):
                unknown = f"a parameter outside any layer hangs on it ({target.name})"
        producers = sorted({s.module for s in slots if s.axis == "out" and s.module in order}, key=order.__getitem__)
        width = len(items[0].idxs)
        groups.append(Group(producers[0], width, tuple(slots), tuple(producers), unknown))
    return groups


def _fix(group: Group, modules: dict[str, nn.Module], head: str, ignore: Sequence[str]) -> Group:
    reason = group.fixed
    for slot in group.slots:
        module = modules[slot.module]
        if slot.axis == "out" and slot.module == head:
            reason = "the logits"
        elif not supports(module):
            reason = reason or f"{slot.module} is a {_kind(module)}, which cannot be cut"
        elif slot.axis == "out" and any(slot.module == name or slot.module.startswith(f"{name}.") for name in ignore):
            reason = reason or f"{slot.module} is to be ignored"
    return Group(group.name, group.width, group.slots, group.producers, reason)


def _kind(module: nn.Module) -> str:
    return f"grouped {type(module).__name__}" if getattr(module, "groups", 1) > 1 else type(module).__name__


def _size(module: nn.Module) -> tuple[int, int]:
    if isinstance(module, nn.Linear):
        return module.out_features, module.in_features
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return module.out_channels, module.in_channels
    channels = int(getattr(module, "num_features", getattr(module, "num_parameters", 0)))
    return channels, channels
