"""Which layers of a cut network are solved, in which order, and for which target.

A layer is solved for its output in the original. Layers whose outputs are added are solved together, for the original's
sum minus the operands that are given: a residual branch thus compensates for earlier losses in its stream. Where the
branch after a sum is removed, the target is the stream after that branch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import fx, nn

from catro_deploy.graph.coupling.layers import PRODUCERS
from catro_deploy.graph.cut.kinds import groups_of
from catro_deploy.graph.fx.calls import adds
from catro_deploy.reconstruction.graphs import CutGraph, OriginalGraph
from catro_deploy.reconstruction.rows import why_opaque

__all__ = ["Step", "steps_of"]

TRANSPARENT = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass(frozen=True)
class Step:
    """Layers to be solved together.

    Attributes:
        layers: their nodes in the cut graph.
        given: nodes of the cut graph that are added to the layers' outputs.
        target: name of the node of the original's graph whose value the sum of all these should equal.
    """

    layers: tuple[fx.Node, ...]
    given: tuple[fx.Node, ...]
    target: str

    @property
    def inputs(self) -> tuple[fx.Node, ...]:
        """The inputs of the layers."""
        return tuple(node.all_input_nodes[0] for node in self.layers)

    @property
    def needed(self) -> tuple[fx.Node, ...]:
        """Nodes of the cut graph whose values are needed to solve the layers."""
        return tuple(dict.fromkeys((*self.inputs, *self.given)))


def steps_of(original: OriginalGraph, cut: CutGraph) -> tuple[list[Step], dict[str, str]]:
    """The steps in order, only for layers that the cut affects; and why other such layers are skipped.

    A step depends only on earlier ones.
    """
    modules = dict(cut.module.named_modules())
    place = {node: at for at, node in enumerate(cut.module.graph.nodes)}
    calls: dict[str, int] = {}
    for node in place:
        if node.op == "call_module":
            calls[str(node.target)] = calls.get(str(node.target), 0) + 1
    solvable, reasons = _solvable(cut, modules, calls, place)
    sums = _sums(cut.module.graph, solvable, modules, original)
    in_sum = {layer for step in sums for layer in step.layers}
    steps = [*sums, *(Step((node,), (), node.name) for node in solvable if node not in in_sum)]
    steps = [replace(step, target=cut.stand_ins.get(step.target, step.target)) for step in steps]
    # Given operands come first: one may be a layer that is solved for its own output.
    steps.sort(key=lambda step: max((*(place[n] for n in step.layers), *(place[n] + 0.5 for n in step.given))))
    changed = _changed(cut, place)
    aims_elsewhere = set(cut.stand_ins.values())
    kept = [step for step in steps if step.target in aims_elsewhere or changed & {*step.needed, *step.layers}]
    left = {str(n.target): why for n, why in reasons.items() if n in changed and set(n.all_input_nodes) & changed}
    return kept, left


def _solvable(
    cut: CutGraph, modules: Mapping[str, nn.Module], calls: Mapping[str, int], place: Mapping[fx.Node, int]
) -> tuple[list[fx.Node], dict[fx.Node, str]]:
    """Calls of layers that can be solved, and the reason for each that cannot."""
    found, reasons = [], {}
    owners: dict[int, int] = {}
    for module in modules.values():
        if isinstance(module, PRODUCERS) and "weight" in module._parameters:
            owners[id(module.weight)] = owners.get(id(module.weight), 0) + 1
    for node in place:
        called = modules.get(str(node.target)) if node.op == "call_module" else None
        if not isinstance(called, PRODUCERS):
            continue
        reason = why_opaque(called)
        if not reason and (calls[str(node.target)] > 1 or owners[id(called.weight)] > 1):
            reason = "its weight is used in several places"
        if not reason and (len(node.all_input_nodes) != 1 or node.all_input_nodes[0] is not node.args[0]):
            reason = "it is called in an unusual way"
        if reason:
            reasons[node] = reason
        else:
            found.append(node)
    return found, reasons


def _sums(
    graph: fx.Graph, solvable: list[fx.Node], modules: Mapping[str, nn.Module], original: OriginalGraph
) -> list[Step]:
    """A step for each sum of layers of ``solvable`` whose outputs only it reads; no layer is in two steps."""
    can = set(solvable)
    steps = []
    for root in graph.nodes:
        if not _is_sum(root) or any(_is_sum(user) and len(root.users) == 1 for user in root.users):
            continue
        layers: list[fx.Node] = []
        given: list[fx.Node] = []
        waiting = list(reversed(root.args))
        while waiting:
            term = waiting.pop()
            source = _through(term, modules)
            same_shape = _positions(original, source) == _positions(original, root)
            if _is_sum(source) and len(source.users) == 1:
                waiting += reversed(source.args)
            elif source in can and len(source.users) == 1 and same_shape:
                layers.append(source)
            else:
                given.append(term)
        if len(layers) > 1:  # a grouped layer among several is solved for its own output
            grouped = [node for node in layers if groups_of(modules[str(node.target)]) > 1]
            layers, given = [node for node in layers if node not in grouped], [*given, *grouped]
        if layers:
            steps.append(Step(tuple(layers), tuple(given), root.name))
    return steps


def _changed(cut: CutGraph, place: Mapping[fx.Node, int]) -> set[fx.Node]:
    """Nodes, including layers, whose value in the kept channels differs from the original's if nothing is solved."""
    modules = dict(cut.module.named_modules())
    changed: set[fx.Node] = set()
    for node in place:
        name = str(node.target)
        narrowed = node.op == "call_module" and any(
            keep.inputs is not None
            for inner, keep in cut.keeps.items()
            if (inner == name or inner.startswith(f"{name}.")) and groups_of(modules.get(inner, nn.Identity())) == 1
        )
        read = node.op == "get_attr" and name in cut.keeps and cut.keeps[name].inputs is not None
        if narrowed or read or node.name in cut.stand_ins or changed.intersection(node.all_input_nodes):
            changed.add(node)
    return changed


def _is_sum(node: fx.Node) -> bool:
    return adds(node) and len(node.args) == 2 and not node.kwargs and all(isinstance(a, fx.Node) for a in node.args)


def _through(node: fx.Node, modules: Mapping[str, nn.Module]) -> fx.Node:
    """The node whose value ``node`` only passes on, in eval mode, and to a single reader."""
    while len(node.users) == 1 and (
        (node.op == "call_module" and isinstance(modules[str(node.target)], TRANSPARENT))
        or (node.op == "call_function" and node.target is torch.clone)
    ):
        node = node.all_input_nodes[0]
    return node


def _positions(original: OriginalGraph, node: fx.Node) -> tuple[int, ...]:
    shape = original.shapes.get(node.name, torch.Size())
    return tuple(shape[:1]) + tuple(shape[2:])
