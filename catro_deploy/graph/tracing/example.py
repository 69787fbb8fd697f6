"""Sizes in a graph that is being traced, from running its nodes on example images without values (meta device)."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg

__all__ = ["Example", "UnknownNumber"]

BATCHES = (1, 64)
"""A number that differs between batches of these sizes depends on how many images there are."""


class UnknownNumber(Exception):  # noqa: N818 - the caller decides what it means
    """The number is known only in a run on real images."""


class Example:
    """What the nodes of a graph compute from example images of ``input_shape`` (channels, height, width).

    ``sizes`` are the values of those numbers held by modules that are nodes of the graph.
    """

    def __init__(self, model: nn.Module, input_shape: tuple[int, int, int], sizes: Mapping[str, Any]) -> None:
        self._root, self._model, self._sizes = model, _hollow(model).eval(), sizes
        self._images = [torch.zeros(count, *input_shape, device="meta") for count in BATCHES]
        self._found: dict[fx.Node, list[Any] | None] = {}
        self._last: fx.Node | None = None
        self.running = False

    def values(self, node: fx.Node) -> list[Any]:
        """The value of ``node`` for each of BATCHES: tensors without values, numbers, or sequences of those.

        Raises:
            UnknownNumber: it depends on the values of the images.
        """
        if node not in self._found:
            self._catch_up(node)
        found = self._found[node]
        if found is None:
            raise UnknownNumber("it depends on the values of the images")
        return found

    def number(self, node: fx.Node) -> Any:  # noqa: ANN401 - bool, int, float, or a sequence of those
        """The value of ``node`` for any number of images.

        Raises:
            UnknownNumber: it depends on the values of the images, or on how many there are.
        """
        one, many = self.values(node)
        if _has_tensors(one):
            raise UnknownNumber("it depends on the values of the images")
        if one != many:
            raise UnknownNumber("it depends on how many images there are")
        return one

    def length(self, node: fx.Node) -> int:
        """The length of ``node``, a tuple, list or tensor, for any number of images.

        Raises:
            UnknownNumber: as ``number``.
        """
        one, many = map(len, self.values(node))
        if one != many:
            raise UnknownNumber("it depends on how many images there are")
        return one

    def _catch_up(self, end: fx.Node) -> None:
        """Compute the nodes traced since the last call, up to ``end``."""
        self.running = True
        node = next(iter(end.graph.nodes)) if self._last is None else self._last.next
        try:
            while True:
                self._found[node] = self._computed(node)
                self._last = node
                if node is end:
                    break
                node = node.next
        finally:
            self.running = False

    def _computed(self, node: fx.Node) -> list[Any] | None:
        try:
            with torch.no_grad():
                return [self._run(node, place) for place in range(len(BATCHES))]
        except Exception:  # whatever a node that needs values or unknown inputs raises
            return None

    def _run(self, node: fx.Node, place: int) -> Any:  # noqa: ANN401 - whatever the node returns
        args: Any = map_arg(node.args, lambda source: self.values(source)[place])
        kwargs: Any = map_arg(node.kwargs, lambda source: self.values(source)[place])
        match node.op:
            case "placeholder":
                return self._images[place]
            case "get_attr":
                return self._attribute(str(node.target))
            case "call_module":
                return self._model.get_submodule(str(node.target))(*args, **kwargs)
            case "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            case _:
                return node.target(*args, **kwargs)  # type: ignore[operator]

    def _attribute(self, name: str) -> Any:  # noqa: ANN401 - a tensor, or a number that a module holds
        if name in self._sizes:
            return self._sizes[name]
        owner, _, attribute = name.rpartition(".")
        own = self._model.get_submodule(owner)
        if hasattr(own, attribute):
            return getattr(own, attribute)
        return getattr(self._root, attribute).to("meta")  # a constant that the trace itself has created


def _hollow(model: nn.Module) -> nn.Module:
    """A copy of ``model`` whose tensors have no values."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [
        value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor)
    ]
    memo: dict[int, Any] = {
        id(tensor): nn.Parameter(tensor.detach().to("meta"), tensor.requires_grad)
        if isinstance(tensor, nn.Parameter)
        else tensor.detach().to("meta")
        for tensor in tensors
    }
    return copy.deepcopy(model, memo)


def _has_tensors(value: Any) -> bool:  # noqa: ANN401 - what a node returns
    if isinstance(value, list | tuple):
        return any(map(_has_tensors, value))
    return isinstance(value, torch.Tensor)
