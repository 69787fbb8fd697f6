"""Labels of tensors, followed through every operation that torch dispatches while a model runs (rules: rules.py)."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from catro_deploy.graph.coupling.atoms import Atoms, Labels
from catro_deploy.graph.cut.kinds import axes, supports
from catro_deploy.graph.cut.sizes import sizes_of

__all__ = ["Axes", "Follower", "Given", "LabelledTensors", "Leaf", "Rule", "Tracked", "tensors_in"]

Side = Literal["out", "in"]
Axes = dict[int, Labels]
"""Labels of the axes of a tensor; an axis without labels is constant: all its indices stay."""
Given = dict[str, Any]
"""Arguments of an operation, by their names in its schema."""
LabelledTensors = list[tuple[torch.Tensor, Axes]]

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, *TRANSPOSED)
LIBRARY = (f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).parent}{os.sep}")
"""Folders of library code."""


@dataclass(frozen=True)
class Leaf:
    """One side of a parameter or buffer, or of a number that a module holds: ``tensor`` is its full name."""

    tensor: str
    side: Side


@dataclass(frozen=True)
class Tracked:
    """Labels of those ``axes`` of a tensor that have any; ``weight``: whether parameters alone determine it."""

    axes: Mapping[int, Labels] = field(default_factory=dict)
    weight: bool = False


class Follower(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows labels through every operation, by the rule that ``rule_of`` returns for it.

    ``leaves`` holds the labels of each side of the parameters and buffers seen so far, and of the numbers that change
    with the channels, except those in ``not_sizes``.
    """

    def __init__(self, model: nn.Module, rule_of: Callable[[Any], "Rule"], not_sizes: Collection[str] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.atoms = Atoms()
        self._rule_of = rule_of
        self.leaves: dict[Leaf, Labels] = {}
        self._tracked: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._names = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self._owners = dict(model.named_modules())
        self._not_sizes = not_sizes
        self._inside: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an OpOverload, which has no stub
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        result = func(*args, **(kwargs or {}))
        given = _bound(func, args, kwargs or {})
        read = [self.of(tensor) for tensor in tensors_in(given)]
        if any(tracked.axes or tracked.weight for tracked in read):
            weight = all(tracked.weight for tracked in read)
            labelled = self._rule_of(func)(self, given, result)
            for tensor, axes in [*((tensor, {}) for tensor in tensors_in(result)), *labelled]:
                self._tracked[tensor] = Tracked(axes, weight)
        return result

    @contextmanager
    def places(self, model: nn.Module) -> Iterator[None]:
        """Track which module is running, to report where channels must stay."""
        hooks = []
        for name, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(lambda *_, name=name: self._inside.append(name)))
            hooks.append(module.register_forward_hook(lambda *_: self._leave(), always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def of(self, tensor: torch.Tensor) -> Tracked:
        """The labels of ``tensor``; a parameter or buffer seen for the first time gets new ones."""
        found: Tracked | None = self._tracked.get(tensor)  # type: ignore[no-untyped-call]
        if found is None:
            name = self._names.get(id(tensor))
            found = self._tracked[tensor] = Tracked() if name is None else Tracked(self._labelled(name, tensor), True)
        return found

    def label_weight(self, weight: torch.Tensor, outputs: Labels, inputs: Labels) -> None:
        """Label both sides of the ``weight`` of a grouped convolution, whose axes do not cover all of its inputs.

        A computed weight is attributed to the module that is running, if that has a weight. A weight outside the known
        kinds of modules has outputs only.
        """
        name = self._names.get(id(weight), f"{self._inside[-1]}.weight" if self._inside else "")
        if name not in self._names.values():
            return
        known = isinstance(self._owners.get(name.rpartition(".")[0]), WEIGHTED)
        sides: dict[Side, Labels] = {"out": outputs, "in": inputs} if known else {"out": outputs}
        for side, labels in sides.items():
            before = self.leaves.get(Leaf(name, side))
            if before is not None and len(before) == len(labels):
                self.atoms.join(before, labels, "")
            self.leaves[Leaf(name, side)] = labels
        if not known:
            self.leaves.pop(Leaf(name, "in"), None)

    def is_stored(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` is a parameter or buffer of the model."""
        return id(tensor) in self._names

    def weight_with_outputs(self, labels: Labels) -> str:
        """The parameter or buffer that has some of ``labels`` on the axis of its outputs; empty if none has."""
        for leaf, own in self.leaves.items():
            if leaf.side == "out" and leaf.tensor in self._names.values() and np.isin(labels, own).any():
                return leaf.tensor
        return ""

    def follow_stored_size(self, *parts: Labels) -> bool:
        """Follow the number, or list of numbers, that the running module stores as the size of ``parts``, if any.

        From then on, such a number is treated as that size and changes with it. Those of a layer change with its
        tensors; only a normalisation that has none, such as ``GroupNorm(affine=False)``, is followed by its numbers.
        """
        module = self._owners[self._inside[-1] if self._inside else ""]
        has_tensors = any(True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False)))
        sizes = {} if supports(module) and has_tensors else sizes_of(module)
        lengths, found = tuple(len(labels) for labels in parts), False
        for attribute, several in sizes.items():
            name = f"{self._inside[-1]}.{attribute}".lstrip(".") if self._inside else attribute
            if several == lengths and name not in self._not_sizes:
                labels = np.concatenate(parts)
                reason = self.why("a stored size counts constant channels")
                self.atoms.join(self.leaves.setdefault(Leaf(name, "out"), labels), labels, reason)
                found = True
        return found

    def fix(self, labels: Labels, what: str) -> None:
        """Fix the atoms of ``labels``, because of ``what`` at this place in the forward."""
        self.atoms.fix(labels.tolist(), self.why(what))

    def join(self, left: Labels, right: Labels, what: str) -> None:
        """Merge each pair of labels; if one of them is constant, ``what`` is the reason why the other must stay."""
        self.atoms.join(left, right, self.why(what))

    def tie(self, left: Labels, right: Labels, what: str) -> None:
        """Merge each pair of labels of one tensor into one atom; ``what`` couples them."""
        self.atoms.tie(left, right, self.why(what))

    def why(self, what: str) -> str:
        """``what`` and the place in the user's code that is running."""
        module = self._inside[-1] if self._inside else ""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(LIBRARY):
            frame = frame.f_back
        line = f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame is not None else ""
        return f"{what} in {module or 'the forward'}{line}"

    def _leave(self) -> None:
        self._inside.pop()

    def _labelled(self, name: str, tensor: torch.Tensor) -> dict[int, Labels]:
        """Labels for the axes of a parameter or buffer that can be cut: outputs, and inputs of a weight."""
        owner = self._owners[name.rpartition(".")[0]]
        long = [axis for axis, size in enumerate(tensor.shape) if size > 1]
        sides: dict[int, Side]
        if tensor.ndim > 1 and isinstance(owner, WEIGHTED):
            sides = {0: "in", 1: "out"} if isinstance(owner, TRANSPOSED) else {0: "out", 1: "in"}
        else:
            out, inputs = axes(tensor.shape)
            sides = {inputs: "in", out: "out"}
        labels = {axis: self.atoms.fresh(tensor.shape[axis]) for axis in long if axis in sides}
        self.leaves |= {Leaf(name, sides[axis]): labels[axis] for axis in labels}
        return labels


Rule = Callable[[Follower, Given, Any], LabelledTensors]
"""Returns the labels of the axes of the tensors in a result."""


def _bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - an OpOverload
    """Arguments by their names in the schema of the operation, with defaults filled in."""
    schema = func._schema.arguments
    given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return given | {argument.name: value for argument, value in zip(schema, args, strict=False)} | dict(kwargs)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401 - arguments or outputs
    """The tensors in a value or nested in its lists, tuples and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part)
