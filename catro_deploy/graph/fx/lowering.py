"""Layers of classes derived from torch's, lowered to torch's own where these compute the same.

Convolutions that pad their input themselves (as TensorFlow's "same" needs) become a padding and a convolution, and
normalisations that activate (timm's) become a normalisation and an activation. What a class computes is not guessed
from its name: a convolution's forward is observed, operation by operation; others are compared on random input.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from catro_deploy.graph.fx.folding import has_hooks

__all__ = ["lower_layers_"]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
PLAIN = (*CONVOLUTIONS, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def lower_layers_(module: fx.GraphModule, input_shape: tuple[int, int, int]) -> None:
    """Lower the layers of a network in eval mode, in place; names and parameters stay.

    The graph computes the same for images of ``input_shape`` (channels, height, width), and only for those. Classes
    that do more are left as they are.
    """
    modules = dict(module.named_modules())
    derived = [node for node in module.graph.find_nodes(op="call_module") if _is_derived(modules[str(node.target)])]
    if not derived:
        return
    device = next(module.parameters()).device
    with torch.no_grad():
        ShapeProp(module).propagate(torch.zeros(1, *input_shape, device=device))
        calls: dict[str, list[fx.Node]] = {}
        shapes: dict[str, set[torch.Size | None]] = {}
        for node in derived:
            calls.setdefault(str(node.target), []).append(node)
            meta = node.args[0].meta.get("tensor_meta") if node.args and isinstance(node.args[0], fx.Node) else None
            shapes.setdefault(str(node.target), set()).add(getattr(meta, "shape", None))
        for name, nodes in calls.items():
            usual = all(len(node.args) == 1 and not node.kwargs for node in nodes)
            shape = shapes[name].pop() if len(shapes[name]) == 1 else None
            if usual and shape is not None and not has_hooks(modules[name]):
                _lower_(module, name, nodes, shape)
    module.recompile()


def _is_derived(module: nn.Module) -> bool:
    return isinstance(module, PLAIN) and type(module).forward is not _kind(module).forward


def _kind(module: nn.Module) -> Any:  # noqa: ANN401 - a class, whose arguments differ
    return next(kind for kind in PLAIN if isinstance(module, kind))


def _lower_(graph: fx.GraphModule, name: str, calls: Sequence[fx.Node], shape: torch.Size) -> None:
    layer: Any = graph.get_submodule(name)
    if isinstance(layer, CONVOLUTIONS):
        border, plain = _observed(layer, shape)
        if plain is not None:
            graph.set_submodule(name, plain)
            for call in calls if any(border) else ():
                with graph.graph.inserting_before(call):
                    call.args = (graph.graph.call_function(functional.pad, (call.args[0], border)),)
        return
    behind = {child: part for child, part in layer.named_children() if not isinstance(part, nn.Identity)}
    image = torch.randn(2, *shape[1:], generator=torch.Generator().manual_seed(0)).to(layer.weight.device)
    expected = _kind(layer).forward(layer, image)
    for part in behind.values():
        expected = part(expected)
    if not torch.equal(layer(image), expected):
        return
    graph.set_submodule(name, _plain_copy(layer, behind))
    for call in calls:
        last = call
        for child in behind:
            with graph.graph.inserting_after(last):
                follower = graph.graph.call_module(f"{name}.{child}", (last,))
            last.replace_all_uses_with(follower)
            follower.args = (last,)
            last = follower


def _plain_copy(layer: nn.Module, behind: dict[str, nn.Module]) -> nn.Module:
    """A layer of torch's own class with the state of ``layer``, and with the modules ``behind`` it as its children."""
    plain: nn.Module = _kind(layer).__new__(_kind(layer))
    plain.__dict__ = {**layer.__dict__, "_modules": dict(behind)}
    return plain


def _observed(layer: Any, shape: torch.Size) -> tuple[list[int], nn.Module | None]:  # noqa: ANN401 - see _kind
    """The padding that ``layer`` adds to an input of ``shape``, and its convolution; None if it does anything else."""
    source = image = torch.zeros(shape, device=next(layer.parameters()).device)
    with _Recorder() as recorder:
        result = layer(image)
    border: list[int] = []
    *before, (last, arguments, output) = recorder.calls
    for operation, (given, *amounts), padded in before:
        pads = operation is torch.ops.aten.constant_pad_nd.default and given is source and not border
        if not pads or any(amounts[1:]):  # or it pads with a value other than zero
            return [], None
        border, source = list(amounts[0]), padded
    if last is not torch.ops.aten.convolution.default or output is not result:
        return [], None
    given, weight, bias, stride, padding, dilation, transposed, _, groups = arguments
    if transposed or given is not source or weight is not layer._parameters.get("weight") or bias is not layer.bias:
        return [], None
    sizes = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups}
    plain = _kind(layer)(source.shape[1], len(weight), tuple(weight.shape[2:]), **sizes, bias=False, device="meta")
    plain.weight, plain.bias = weight, bias
    return border, plain.eval()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations of a forward: each with its arguments and its result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, result))
        return result
