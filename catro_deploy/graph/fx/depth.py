"""Depth pruning: residual branches that may be removed as a whole, and the module without them.

A branch is one operand of an addition, with the nodes that only this addition needs, from the point where the two
operands diverge. Without it, the other operand remains: an identity or a projection.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import PRODUCERS, Network
from catro_deploy.graph.cut.sizes import stored_sizes
from catro_deploy.graph.fx.calls import adds, is_rectified, is_relu, overwrites
from catro_deploy.graph.tracing.symbolic import symbolic
from catro_deploy.graph.tracing.tracer import is_inside
from catro_deploy.records import Branch

__all__ = ["Operand", "cut_branches_", "drop_branches", "find_branches", "named_operands"]

# The backward pass needs the inputs of these modules, never their outputs, so the outputs may be overwritten.
FORGET_OUTPUT = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

TRACE_TOLERANCE = 1e-4
"""Largest deviation of the graph's logits from the module's that is rounding, as a share of the largest logit."""


@dataclass(frozen=True)
class Operand:
    """One operand of ``addition`` that may be removed: its ``nodes`` and ``modules`` in order.

    ``layers`` are the producers among the modules; ``tensors`` are the parameters, buffers and sizes that it reads
    outside modules.
    """

    addition: fx.Node
    nodes: tuple[fx.Node, ...]
    modules: tuple[str, ...]
    layers: tuple[str, ...]
    tensors: tuple[str, ...]

    @property
    def other(self) -> fx.Node:
        """The operand that stays; it is another node once the preceding branch is removed."""
        return next(node for node in self.addition.all_input_nodes if node is not self.nodes[-1])


def find_branches(model: nn.Module, network: Network) -> tuple[Branch, ...]:
    """Find the residual branches of ``model``, traced as ``network``, that may be removed, in the order of execution.

    These are left out:

    - branches without their own group, such as a single convolution: no width of 0 would mark them as removed;
    - branches with a group that must stay as it is, a layer that reads and writes channels from outside, or a module
      that the network is to ignore;
    - branches that contain another branch, and of two removable operands the one with fewer layers (a projection);
    - branches whose shape is not that of the other operand.

    Depth pruning is optional: a model whose forward torch.fx cannot trace has no such branches.
    """
    try:
        module = symbolic(model, network.ignore, list(network.sizes), network.input_shape).module
        shapes = _shapes(module, model, network.input_shape)
    except ModelError:
        return ()
    found = []
    others = {slot.module for group in network.groups for slot in group.slots} - dict(model.named_modules()).keys()
    read = {node.target for node in module.graph.find_nodes(op="get_attr") if node.users}
    unread = stored_sizes(model, others).keys() - read
    for name, operand in _operands(module.graph, dict(module.named_modules())).items():
        inside = {*operand.modules, *operand.tensors}
        inside |= {name for name in others if is_inside(name, operand.modules)}
        groups = [group for group in network.groups if {slot.module for slot in group.slots} - unread <= inside]
        covered = {slot.module for group in groups for slot in group.slots}
        left_alone = any(is_inside(module, network.ignore) for module in inside)
        same_shape = len({shapes.get(node) for node in (operand.addition, operand.other, operand.nodes[-1])}) == 1
        if (
            groups
            and not any(group.fixed for group in groups)
            and covered.issuperset(operand.layers)
            and same_shape
            and not left_alone
        ):
            gone = (*sorted(inside - set(operand.modules)), *operand.modules)
            found.append(Branch(name, tuple(group.name for group in groups), gone))
    return tuple(found)


def drop_branches(
    model: nn.Module,
    names: Sequence[str],
    ignore: Sequence[str] = (),
    sizes: Collection[str] = (),
    input_shape: tuple[int, int, int] | None = None,
) -> nn.Module:
    """Return a copy of ``model`` without the branches ``names``; with no names, ``model`` itself.

    ``ignore`` (names or prefixes) must be the one with which the branches were found. The numbers among ``sizes``
    (names) that the forward reads can be changed in the copy, as in the model. If the forward branches or loops on
    sizes, those of images of ``input_shape`` (channels, height, width) decide.

    The copy is a torch.fx.GraphModule with only what its forward needs; parameters and buffers keep their names. Its
    channels have to be traced again, since a group is named after its first producer, which may be removed. A ReLU that
    then directly follows another one is removed as well, which does not change the output.

    Raises:
        ModelError: the forward cannot be traced, or a name is not that of a branch.
    """
    if not names:
        return model
    module = symbolic(model, ignore, sizes, input_shape).module
    cut_branches_(module.graph, names, dict(module.named_modules()))
    dropped = fx.GraphModule(module, module.graph, type(model).__name__)  # copies only what the graph still refers to
    return dropped.train(model.training)


def cut_branches_(graph: fx.Graph, names: Sequence[str], modules: dict[str, nn.Module]) -> dict[fx.Node, str]:
    """Remove the branches ``names`` from a graph that calls ``modules``; other nodes keep their names.

    Returns:
        The node that replaces each removed addition, before its activation, with the name of that addition; of several
        in a row, the last one. An addition is left out if other nodes read the replacing value as well, or if an
        activation keeps it from having all the values that the addition had.

    Raises:
        ModelError: a name is not that of a branch.
    """
    copies, additions = [], []
    for operand in named_operands(graph, modules, tuple(dict.fromkeys(names))):
        with graph.inserting_before(operand.addition):
            copies.append(graph.call_function(torch.clone, (operand.other,)))
        additions.append(operand.addition.name)
        operand.addition.replace_all_uses_with(copies[-1])
        graph.erase_node(operand.addition)
        for node in reversed(operand.nodes):
            graph.erase_node(node)
    stand_ins: dict[fx.Node, str] = {}
    for node, addition in zip(copies, additions, strict=True):
        (source,) = node.all_input_nodes
        alone = len(source.users) == 1
        before = _before_rectifier(source, modules) if _simplify_(node, modules) else source
        if alone and before is not None:
            stand_ins[before] = addition
    for node in [*graph.find_nodes(op="get_attr")]:
        if not node.users:
            graph.erase_node(node)
    return stand_ins


def _operands(graph: fx.Graph, modules: dict[str, nn.Module]) -> dict[str, Operand]:
    """The branches found from the graph alone, by the name of their last layer, in the order of execution."""
    upstream: dict[fx.Node, set[fx.Node]] = {}
    found: list[Operand] = []
    for node in graph.nodes:
        upstream[node] = {node}.union(*(upstream[source] for source in node.all_input_nodes))
        terms = [*node.args, *node.kwargs.values()] if adds(node) else []
        if len(terms) == 2 and all(isinstance(term, fx.Node) for term in terms):
            pairs = [(terms[0], terms[1]), (terms[1], terms[0])]
            both = [_operand(node, upstream[term] - upstream[other], modules) for term, other in pairs]
            found += sorted(filter(None, both), key=lambda o: (len(o.layers), len(o.nodes)))[-1:]
    # A branch that contains another may not be removed: widths of 0 in the inner one would not tell which one is gone.
    return {
        outer.layers[-1]: outer for outer in found if not any(set(inner.nodes) < set(outer.nodes) for inner in found)
    }


def _operand(addition: fx.Node, alone: set[fx.Node], modules: dict[str, nn.Module]) -> Operand | None:
    """The operand that needs the nodes ``alone``, which the other does not need; None if it must stay."""
    nodes = [node for node in addition.graph.nodes if node in alone and node.op != "get_attr"]
    inside = {*nodes, addition}
    elsewhere = {node.target for node in addition.graph.find_nodes(op="call_module") if node not in inside}
    called = dict.fromkeys(str(node.target) for node in nodes if node.op == "call_module")
    leaves = [name for name in called if name not in elsewhere]
    own = tuple(part for name in leaves for part in [*_parts(name, modules), name])
    read = [node for node in addition.graph.find_nodes(op="get_attr") if node in alone]
    read_elsewhere = {node.target for node in addition.graph.find_nodes(op="get_attr") if node not in alone}
    tensors = tuple(dict.fromkeys(str(node.target) for node in read if node.target not in read_elsewhere))
    layers = tuple(name for name in own if isinstance(modules[name], PRODUCERS))
    closed = all(
        node.op != "placeholder"
        and inside.issuperset(node.users)
        and (not overwrites(node, modules) or node.all_input_nodes[0] in inside)
        for node in nodes
    )
    return Operand(addition, tuple(nodes), own, layers, tensors) if closed and len(layers) > 1 else None


def _parts(name: str, modules: dict[str, nn.Module]) -> list[str]:
    """Submodules of the module ``name``, which the graph only calls as a whole."""
    return [f"{name}.{part}" for part, _ in modules[name].named_modules() if part]


def named_operands(graph: fx.Graph, modules: dict[str, nn.Module], names: Sequence[str]) -> list[Operand]:
    """The branches ``names`` of a graph that calls ``modules``.

    Raises:
        ModelError: a name is not that of a branch.
    """
    known = _operands(graph, modules)
    for name in names:
        if name not in known:
            raise ModelError(
                f"The model has no residual branch {name}.",
                f"It has: {', '.join(known) or 'none'}. Use the model that the plan was made for.",
            )
    return [known[name] for name in names]


def _shapes(module: fx.GraphModule, model: nn.Module, input_shape: tuple[int, int, int]) -> dict[fx.Node, torch.Size]:
    """Shapes of the nodes' outputs for one image; ModelError if the graph does not compute what ``model`` does."""
    images = torch.randn(1, *input_shape, generator=torch.Generator().manual_seed(0))
    images = images.to(next(model.parameters()).device)
    with torch.no_grad():
        found = ShapeProp(module.eval()).propagate(images)
        expected = model.eval()(images)
    if (
        not isinstance(expected, torch.Tensor)
        or not (found - expected).abs().max() <= TRACE_TOLERANCE * expected.abs().max()
    ):
        raise ModelError(
            "The traced graph does not compute what the model does.", "Look for in-place operations in the forward."
        )
    metas = {node: node.meta.get("tensor_meta") for node in module.graph.nodes}
    return {node: meta.shape for node, meta in metas.items() if hasattr(meta, "shape")}


def _before_rectifier(node: fx.Node, modules: dict[str, nn.Module]) -> fx.Node | None:
    """The input of the ReLU ``node``; None if ``node`` is no ReLU, or not the only reader of its input."""
    (source,) = node.all_input_nodes[:1] or (None,)
    return source if source is not None and is_relu(node, modules) and len(source.users) == 1 else None


def _simplify_(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Remove ``node``, a clone of the operand that stays, and a ReLU after it, if they change nothing.

    Returns:
        Whether such a ReLU was removed.
    """
    (source,) = node.all_input_nodes
    users = list(node.users)
    rectified_again = len(users) == 1 and is_relu(users[0], modules) and is_rectified(source, modules)
    if rectified_again:
        users[0].replace_all_uses_with(node)
        node.graph.erase_node(users[0])
    written = any(overwrites(user, modules) and user.all_input_nodes[0] is node for user in node.users)
    made_by = modules.get(str(source.target)) if source.op == "call_module" else None
    if not written or (len(source.users) == 1 and isinstance(made_by, FORGET_OUTPUT)):
        node.replace_all_uses_with(source)
        node.graph.erase_node(node)
    return rectified_again
