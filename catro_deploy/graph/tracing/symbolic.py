"""A module as a torch.fx graph that can be changed and still trains and evaluates as the module does.

What cannot be traced, such as a submodule with control flow that depends on the data, is one call in the graph.
"""

import copy
import itertools
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from catro_deploy.errors import ModelError
from catro_deploy.graph.cut.sizes import layer_widths
from catro_deploy.graph.tracing.tracer import (
    RANDOM,
    Number,
    Tracer,
    Untraceable,
    is_inside,
    random_states,
    with_opaque_modules,
)

__all__ = ["Symbolic", "evaluation_graph", "symbolic"]

ARITHMETIC = (
    operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod,
    operator.pow, operator.neg, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip
SIZES = ("size", "dim", "numel", "ndimension", "nelement")


@dataclass(frozen=True)
class Symbolic:
    """The graph of a copy of a module; ``opaque`` maps the modules that it only calls as a whole to the reasons.

    The parameters and buffers that remain in the copy keep their names. ``numbers`` are those that the forward has
    read: constants of the graph, valid for the sizes for which it was traced.
    """

    module: fx.GraphModule
    opaque: Mapping[str, str]
    numbers: Sequence[Number]

    def why_hidden(self, name: str) -> str:
        """Why the graph does not show the calls of the module ``name``; empty if it does."""
        if self.module.graph.find_nodes(op="call_module", target=name):
            return ""
        for outer, reason in self.opaque.items():
            if is_inside(name, [outer]):
                return f"{outer} is not traced: {reason}"
        return f"{name} is not called as a module in the forward"


def symbolic(
    model: nn.Module,
    ignore: Sequence[str] = (),
    sizes: Collection[str] = (),
    input_shape: tuple[int, int, int] | None = None,
) -> Symbolic:
    """Trace a copy of ``model`` for training and evaluation; modules in ``ignore`` (names or prefixes) are not traced.

    The numbers named in ``sizes``, which modules hold, may be changed in the graph module afterwards; others may not.
    If the forward branches or loops on sizes, those of images of ``input_shape`` (channels, height, width) decide.

    A trace contains the value of ``self.training`` at the time, as in ``dropout(x, p, self.training)``. So ``model`` is
    traced in both modes: booleans that follow the mode read it from the graph module at every call, and a module that
    follows the mode in another way is called as a whole.

    Raises:
        ModelError: the model's own forward cannot be traced, or the graph would not compute the same.
    """

    def attempt(opaque: Collection[str]) -> tuple[fx.GraphModule, Sequence[Number]]:
        root, graph, numbers = _traced(model, True, opaque, sizes, input_shape)
        _, evaluation, _ = _traced(model, False, opaque, sizes, input_shape)
        _follow_mode_(graph, evaluation)
        return fx.GraphModule(root, graph, type(model).__name__), numbers

    (module, numbers), opaque = with_opaque_modules(model, ignore, attempt)
    module.train(model.training)
    return Symbolic(module, opaque, numbers)


def evaluation_graph(
    model: nn.Module,
    ignore: Sequence[str] = (),
    sizes: Collection[str] = (),
    input_shape: tuple[int, int, int] | None = None,
) -> Symbolic:
    """Trace a copy of ``model`` in eval mode; modules in ``ignore`` (names or prefixes) are not traced.

    ``sizes`` and ``input_shape`` as for ``symbolic``.

    Raises:
        ModelError: the model's own forward cannot be traced, or it does not return one tensor of logits.
    """

    def attempt(opaque: Collection[str]) -> tuple[fx.GraphModule, Sequence[Number]]:
        root, graph, numbers = _traced(model, False, opaque, sizes, input_shape)
        return fx.GraphModule(root, graph, type(model).__name__), numbers

    (module, numbers), opaque = with_opaque_modules(model, ignore, attempt)
    (output,) = module.graph.find_nodes(op="output")
    if not isinstance(output.args[0], fx.Node):
        kind = type(output.args[0]).__name__.removeprefix("immutable_")  # fx has its own lists and dicts
        raise ModelError(
            f"In eval mode {type(model).__name__} returns a {kind}.",
            "A classifier has to return one tensor of logits, (images, classes): wrap it in a module that does.",
        )
    return Symbolic(module.eval(), opaque, numbers)


def _traced(
    model: nn.Module,
    mode: bool,
    opaque: Collection[str],
    sizes: Collection[str],
    input_shape: tuple[int, int, int] | None,
) -> tuple[nn.Module, fx.Graph, Sequence[Number]]:
    """A copy of ``model`` in training (``mode``) or eval mode, its graph, and the numbers that the forward has read."""
    root = copy.deepcopy(model).train(mode)
    sizes = {*sizes, *layer_widths(root)}  # a forward may read them
    before = random_states()
    tracer = Tracer(opaque, sizes, input_shape)
    try:
        graph = tracer.trace(root)
    except Exception as error:  # whatever a user's forward may raise under tracing
        raise tracer.untraceable(error) from error
    if random_states() != before:
        raise Untraceable("", RANDOM, "Draw them in a submodule, or in a function wrapped by torch.fx.wrap.")
    if len(graph.find_nodes(op="placeholder")) != 1:
        raise Untraceable("", "it takes more than the images.", "Pass the rest to the constructor.")
    _read_where_used_(graph, sizes)
    _erase_unused_(graph)
    for module in root.modules():  # otherwise fx would add these constants to the state dict
        for key, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                delattr(module, key)
                module.register_buffer(key, value, persistent=False)
    return root, graph, tracer.numbers


def _read_where_used_(graph: fx.Graph, sizes: Collection[str]) -> None:
    """Read each of ``sizes`` just before it is used, not at the start, so that changes in between take effect."""
    for node in [node for node in graph.find_nodes(op="get_attr") if node.target in sizes]:
        for user in list(node.users):
            with graph.inserting_before(user):
                user.replace_input_with(node, graph.create_node("get_attr", node.target))
        graph.erase_node(node)


def _erase_unused_(graph: fx.Graph) -> None:
    """Remove sizes that nothing reads: they would count as readers of a feature map."""
    for node in reversed(graph.nodes):
        size = node.op == "call_function" and (node.target is getattr or node.target in ARITHMETIC)
        if not node.users and (size or (node.op == "call_method" and node.target in SIZES)):
            graph.erase_node(node)


def _follow_mode_(graph: fx.Graph, evaluation: fx.Graph) -> None:
    """Let arguments that are True in ``graph``, traced in training, and False in ``evaluation`` follow the mode."""
    pairs = list(itertools.zip_longest(graph.nodes, evaluation.nodes))
    with graph.inserting_after(graph.find_nodes(op="placeholder")[0]):
        mode = graph.create_node("get_attr", "training")
    for node, other in pairs:
        if node is None or other is None or (node.op, node.target) != (other.op, other.target):
            raise _follows_mode(node, other)
        try:
            node.args, node.kwargs = _merged((node.args, node.kwargs), (other.args, other.kwargs), mode)
        except ValueError:
            raise _follows_mode(node, other) from None
    if not mode.users:
        graph.erase_node(mode)


def _follows_mode(*nodes: fx.Node | None) -> Untraceable:
    """Blame the innermost module that created one of ``nodes``, in which the two modes differ."""
    stacks = [_modules_around(node) for node in nodes if node is not None]
    path = max(stacks, key=len)[-1]
    return Untraceable(
        path,
        "it does different things in training and in evaluation.",
        "Only submodules such as nn.Dropout and arguments such as dropout(training=self.training) may follow the mode.",
    )


def _modules_around(node: fx.Node) -> list[str]:
    stack = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return ["", *(path for path in stack if node.op != "call_module" or path != node.target)]


def _merged(training: Any, evaluation: Any, mode: fx.Node) -> Any:  # noqa: ANN401 - whatever a call may be given
    """The arguments ``training``, with ``mode`` where they are True and those in ``evaluation`` are False.

    Raises:
        ValueError: they differ in another way.
    """
    others = _leaves(evaluation)
    if len(_leaves(training)) != len(others):
        raise ValueError
    left = iter(others)

    def merge(leaf: Any) -> Any:  # noqa: ANN401
        other = next(left)
        if leaf is True and other is False:
            return mode
        # Nodes of two graphs are the same if they have the same name.
        if type(leaf) is not type(other) or (str(leaf) != str(other) if isinstance(leaf, fx.Node) else leaf != other):
            raise ValueError
        return leaf

    return map_aggregate(training, merge)


def _leaves(arguments: Any) -> list[Any]:  # noqa: ANN401
    found: list[Any] = []
    map_aggregate(arguments, lambda leaf: found.append(leaf))
    return found
