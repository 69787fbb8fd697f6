"""A module's layers with their shapes, and the groups of coupled channels.

Coupled channels are found by following them through a run of the model (couple.py) and recorded as index maps, so that
a plan can be applied and read again without a run. Every group that seems free is then cut as a trial: a forward may
contain hard-coded sizes that no run shows (``x[:, :64]``, ``view(-1, 512)``), and a number that a module holds may
equal its number of channels by chance.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.couple import Coupling, couple
from catro_deploy.graph.coupling.groups import groups_of, tie_of
from catro_deploy.graph.coupling.layers import PRODUCERS, list_layers
from catro_deploy.graph.coupling.macs import count_macs
from catro_deploy.graph.coupling.probe import stubborn
from catro_deploy.graph.cut.kinds import axes, channels
from catro_deploy.graph.cut.sizes import sizes_of, stored_sizes
from catro_deploy.records import Group, Layer
from catro_deploy.suggestions import did_you_mean

__all__ = ["PRODUCERS", "Network", "find_head", "list_layers", "require_modules", "trace"]


@dataclass(frozen=True)
class Network:
    """Layers in the order of execution, groups in the order of their first producer, and the layer of the logits.

    ``sizes`` holds (out, in) channels of every module that has them, and of the tensors and numbers of other modules
    that change with the channels; ``input_shape`` is that of one image (channels, height, width); channels of the
    modules in ``ignore`` (names or their prefixes) stay as they are. ``other_macs`` are the multiply-accumulates of one
    image outside the layers: attention, recurrent layers, products of feature maps.
    """

    layers: tuple[Layer, ...]
    groups: tuple[Group, ...]
    head: str
    sizes: dict[str, tuple[int, int]]
    input_shape: tuple[int, int, int]
    ignore: tuple[str, ...] = ()
    other_macs: int = 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates for one image."""
        return sum(layer.macs for layer in self.layers) + self.other_macs

    def leaving(self, ignore: Sequence[str]) -> "Network":
        """The same network, with the channels of the modules in ``ignore`` (names or their prefixes) fixed.

        Raises:
            ModelError: a name in ``ignore`` is not that of a module.
        """
        require_modules(ignore, self.sizes)
        return replace(self, groups=tuple(_ignored(group, ignore) for group in self.groups), ignore=tuple(ignore))

    def without(self, modules: Container[str]) -> "Network":
        """The same network without ``modules``: groups lose their slots there, and disappear if they have no others."""
        groups = []
        for group in self.groups:
            slots = tuple(slot for slot in group.slots if slot.module not in modules)
            producers = tuple(name for name in group.producers if name not in modules)
            if producers:
                groups.append(replace(group, slots=slots, producers=producers))
        layers = tuple(layer for layer in self.layers if layer.name not in modules)
        sizes = {name: size for name, size in self.sizes.items() if name not in modules}
        return replace(self, layers=layers, groups=tuple(groups), sizes=sizes)


def require_modules(ignore: Sequence[str], known: Iterable[str]) -> None:
    """Check that each module to ``ignore`` is among the ``known`` ones; the first of those is the whole network.

    Raises:
        ModelError: one is not.
    """
    names = list(known)
    for name in ignore:
        if name not in names:
            raise ModelError(
                f"The model has no module {name!r} to ignore.",
                did_you_mean(name, names, otherwise=f"It has: {', '.join(names[1:20])} ..."),
            )


def trace(model: nn.Module, input_shape: tuple[int, int, int], ignore: Sequence[str] = ()) -> Network:
    """Find the layers and groups of ``model`` for images of ``input_shape`` (channels, height, width).

    Channels of the modules in ``ignore`` (names or their prefixes) stay as they are, as do those of the logits and
    those that the forward cannot lose; such groups have the reason in ``fixed``.

    Raises:
        ModelError: the model fails on such images, or a name in ``ignore`` is not that of a module.
    """
    layers = list_layers(model, input_shape)
    order = _order(model, layers)
    not_sizes: set[str] = set()
    while True:
        coupling = couple(model, _image(model, input_shape), not_sizes)
        groups = groups_of(model, coupling, order)
        sizes = _sizes(model, groups)
        reasons = stubborn(model, [group for group in groups if not group.fixed], sizes, input_shape)
        doubtful = stored_sizes(
            model, (slot.module for group in groups if group.name in reasons for slot in group.slots)
        )
        if not doubtful:
            break
        not_sizes |= doubtful.keys()
    groups = [
        _refused(group, reasons[group.name], tie_of(model, coupling, group)) if group.name in reasons else group
        for group in groups
    ]
    head = _head(coupling, layers[-1].name, order)
    others = max(0, count_macs(model, input_shape) - sum(layer.macs for layer in layers))
    return Network(tuple(layers), tuple(groups), head, sizes, input_shape, other_macs=others).leaving(ignore)


def _refused(group: Group, reason: str, tie: str) -> Group:
    """``group``, which a trial cut has refused; what couples its channels shows which code holds their number."""
    return replace(group, fixed=f"{reason}; they are coupled by {tie}" if tie else reason)


def find_head(model: nn.Module, input_shape: tuple[int, int, int]) -> str:
    """The layer that computes the logits of ``model``, found without a full trace.

    Raises:
        ModelError: the model fails on images of ``input_shape`` (channels, height, width).
    """
    layers = list_layers(model, input_shape)
    return _head(couple(model, _image(model, input_shape)), layers[-1].name, _order(model, layers))


def _order(model: nn.Module, layers: Sequence[Layer]) -> dict[str, int]:
    """Positions in the order of execution of the layers that are modules; others have no feature map."""
    modules = dict(model.named_modules())
    return {layer.name: place for place, layer in enumerate(layers) if layer.name in modules}


def _image(model: nn.Module, input_shape: tuple[int, int, int]) -> torch.Tensor:
    return torch.zeros(1, *input_shape, device=next(model.parameters()).device)


def _ignored(group: Group, ignore: Sequence[str]) -> Group:
    for slot in group.slots:
        inside = any(slot.module == name or slot.module.startswith(f"{name}.") for name in ignore)
        if slot.axis == "out" and inside and not group.fixed:
            return replace(group, fixed=f"{slot.module} is to be ignored")
    return group


def _head(coupling: Coupling, last: str, order: Mapping[str, int]) -> str:
    """The layer whose outputs are the logits; ``last`` if they combine several layers' outputs."""
    logits = set(coupling.atoms.roots(coupling.logits).tolist())
    for leaf, labels in coupling.leaves.items():
        owner = leaf.tensor.rpartition(".")[0]
        if leaf.side == "out" and owner in order and logits and set(coupling.atoms.roots(labels).tolist()) == logits:
            return owner
    return last


def _sizes(model: nn.Module, groups: Sequence[Group]) -> dict[str, tuple[int, int]]:
    """(out, in) channels of every module, and of the tensors and numbers outside modules that are cut."""
    sizes = {name: channels(module) for name, module in model.named_modules()}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    others = {slot.module for group in groups for slot in group.slots} - set(sizes)
    for name, (module, attribute) in stored_sizes(model, others).items():
        count = sum(sizes_of(module)[attribute])
        sizes[name] = count, count
    for name in others - set(sizes):
        shape = tensors[name].shape
        out, inputs = axes(shape)
        sizes[name] = (shape[out], shape[inputs] if len(shape) > 1 else shape[out])
    return sizes
