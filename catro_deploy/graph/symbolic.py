"""A module as a torch.fx graph that can be changed and still trains and evaluates as the module does."""

import copy
import itertools
import random
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from catro_deploy.errors import ModelError

__all__ = ["symbolic"]


def symbolic(model: nn.Module) -> fx.GraphModule:
    """Trace a copy of ``model``; what remains of it keeps the names of its parameters and buffers.

    A trace holds what ``self.training`` was at the time, as in ``dropout(x, p, self.training)``. So ``model`` is traced
    in both modes: booleans that follow the mode read it from the graph module at every call, and a forward that follows
    the mode in another way is refused.

    Raises:
        ModelError: the forward cannot be traced, or the graph would not do what it does.
    """
    try:
        root, graph = _root_and_graph(model, True)
        _, evaluation = _root_and_graph(model, False)
    except ModelError:
        raise
    except Exception as error:  # whatever a user's forward may raise under tracing
        raise ModelError(
            f"The forward of {type(model).__name__} cannot be traced: {type(error).__name__}: {error}",
            "Control flow that depends on the data has to leave the forward; torch.fx.wrap hides a function.",
        ) from error
    _follow_mode_(graph, evaluation, type(model).__name__)
    module = fx.GraphModule(root, graph, type(model).__name__)
    return module.train(model.training)


def _root_and_graph(model: nn.Module, mode: bool) -> tuple[nn.Module, fx.Graph]:
    root = copy.deepcopy(model).train(mode)
    before = _random_states()
    graph = fx.Tracer().trace(root)
    name = type(model).__name__
    if _random_states() != before:
        raise ModelError(
            f"The forward of {name} draws random numbers that a trace would repeat for ever.",
            "Draw them in a function that torch.fx.wrap hides.",
        )
    if len(graph.find_nodes(op="placeholder")) != 1:
        raise ModelError(f"The forward of {name} takes more than the images.", "Give the rest to the constructor.")
    for module in root.modules():  # else fx would make parameters of the state of these constants
        for key, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                delattr(module, key)
                module.register_buffer(key, value, persistent=False)
    return root, graph


def _random_states() -> tuple[object, bytes]:
    return random.getstate(), torch.get_rng_state().numpy().tobytes()


def _follow_mode_(graph: fx.Graph, evaluation: fx.Graph, name: str) -> None:
    """Let arguments that are True in ``graph``, traced in training, and False in ``evaluation`` follow the mode."""
    refusal = ModelError(
        f"The forward of {name} does other things in training than in evaluation.",
        "Only modules such as nn.Dropout and arguments such as dropout(training=self.training) may follow the mode.",
    )
    pairs = list(itertools.zip_longest(graph.nodes, evaluation.nodes))
    with graph.inserting_after(graph.find_nodes(op="placeholder")[0]):
        mode = graph.create_node("get_attr", "training")
    for node, other in pairs:
        if node is None or other is None or (node.op, node.target) != (other.op, other.target):
            raise refusal
        try:
            node.args, node.kwargs = _merged((node.args, node.kwargs), (other.args, other.kwargs), mode)
        except ValueError:
            raise refusal from None
    if not mode.users:
        graph.erase_node(mode)


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
        # Nodes of two graphs are the same if they go by the same name.
        if type(leaf) is not type(other) or (str(leaf) != str(other) if isinstance(leaf, fx.Node) else leaf != other):
            raise ValueError
        return leaf

    return map_aggregate(training, merge)


def _leaves(arguments: Any) -> list[Any]:  # noqa: ANN401
    found: list[Any] = []
    map_aggregate(arguments, lambda leaf: found.append(leaf))
    return found
