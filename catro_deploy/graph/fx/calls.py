"""What the nodes of a torch.fx graph do, however it was written: as a function, a method or a module."""

import operator

import torch
from torch import fx, nn
from torch.nn import functional

__all__ = ["adds", "is_rectified", "is_relu", "overwrites"]

ADDITIONS = (operator.add, operator.iadd, torch.add)
ADDING_METHODS = ("add", "add_")
RECTIFIERS = (torch.relu, torch.relu_, functional.relu, functional.relu_, "relu", "relu_")
POOLINGS = (torch.max_pool2d, functional.max_pool2d)
WRITING_OPERATORS = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.setitem, torch.relu_, functional.relu_,
)  # fmt: skip


def adds(node: fx.Node) -> bool:
    """Whether ``node`` adds two values."""
    kinds: dict[str, tuple[object, ...]] = {"call_function": ADDITIONS, "call_method": ADDING_METHODS}
    return node.target in kinds.get(node.op, ())


def overwrites(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether ``node`` overwrites its first input."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    in_place = node.op == "call_method" and str(node.target).endswith("_") and not str(node.target).endswith("__")
    return in_place or bool(node.kwargs.get("inplace")) or node.target in WRITING_OPERATORS


def is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether ``node`` is a ReLU."""
    return _calls(node, RECTIFIERS, nn.ReLU, modules)


def is_rectified(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether no value of ``node`` is below zero: the output of a ReLU, possibly pooled or copied."""
    while _calls(node, (*POOLINGS, torch.clone), nn.MaxPool2d, modules):
        node = node.all_input_nodes[0]
    return is_relu(node, modules)


def _calls(node: fx.Node, functions: tuple[object, ...], kind: type[nn.Module], modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], kind)
    return node.op in ("call_function", "call_method") and node.target in functions
