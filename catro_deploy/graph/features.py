"""Feature maps of a network's layers: all of them in one pass, or layer by layer with pruned inputs.

A layer's feature map is what its consumers read: the output of the convolution after the normalisation and activation
that follow it alone. Both passes walk the torch.fx graph of the module.
"""

import copy
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

from catro_deploy.core.scatter import Scatter, ScatterMeter
from catro_deploy.errors import ModelError
from catro_deploy.graph.activations import Activations, MemoryLimit
from catro_deploy.graph.surgery import apply_keeps_, further, keeps_of
from catro_deploy.progress import Progress
from catro_deploy.records import Group, Keep

__all__ = ["FeatureGraph", "Labelled", "channelwise_after"]

Labelled = tuple[torch.Tensor, int]
"""A batch of normalised images (n, channels, height, width), all of one class, and that class."""

CHANNELWISE_MODULES = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.GELU, nn.SiLU,
    nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.Mish, nn.Dropout, nn.Dropout2d, nn.Identity,
)  # fmt: skip
CHANNELWISE_FUNCTIONS = (
    torch.relu, functional.relu, functional.relu6, functional.leaky_relu, functional.gelu, functional.silu,
    functional.hardswish, torch.sigmoid, torch.tanh, functional.dropout,
)  # fmt: skip


class FeatureGraph:
    """The graph of a copy of a module in eval mode, and the node that holds each producer's feature map.

    Normalisation is folded into the convolutions of the copy, which changes feature maps by rounding only.
    """

    def __init__(self, model: nn.Module, producers: Sequence[str]) -> None:
        try:
            self._module = _fold_batch_norm_(fx.symbolic_trace(copy.deepcopy(model).eval()))
        except Exception as error:  # whatever a user's forward may raise under tracing
            raise ModelError(
                f"The forward of {type(model).__name__} cannot be traced: {type(error).__name__}: {error}",
                "Control flow that depends on the data has to leave the forward; torch.fx.wrap hides a function.",
            ) from error
        self._interpreter = fx.Interpreter(self._module)
        self._nodes = [node for node in self._module.graph.nodes if node.op != "output"]
        self._input = self._nodes[0]
        self._place = {node: place for place, node in enumerate(self._nodes)}
        end = len(self._nodes)
        self._last_use = {n: max((self._place.get(u, end) for u in n.users), default=-1) for n in self._nodes}
        self._features = {name: self._feature_node(name) for name in producers}

    def scatters(self, batches: Iterator[Labelled] | Sequence[Labelled]) -> dict[str, Scatter]:
        """Scatter of every producer's feature map, in one pass over ``batches``, which come class by class.

        Raises:
            NumericsError: a feature map is not finite.
            DataError: fewer than two classes.
        """
        meters = {name: ScatterMeter(name) for name in self._features}
        at: dict[fx.Node, list[ScatterMeter]] = {}
        for name, node in self._features.items():
            at.setdefault(node, []).append(meters[name])
        end = max(self._place[node] for node in at) + 1
        with torch.inference_mode():
            for images, label in batches:
                for node, value in self._run({self._input: images}, 0, end, at):
                    for meter in at[node]:
                        meter.add(value, label)
        return {name: meter.scatter() for name, meter in meters.items()}

    def select_in_order(
        self,
        groups: Sequence[Group],
        sizes: Mapping[str, tuple[int, int]],
        batches: Sequence[Labelled],
        decide: Callable[[Group, Scatter], Sequence[int]],
        limit: MemoryLimit,
        progress: Progress,
    ) -> None:
        """Prune the copy, group by group in the order of execution; use the graph no more afterwards.

        Each group is decided when its first producer has run on inputs that are pruned already: ``decide`` is given
        that producer's scatter and returns the channels to keep. ``sizes`` are the (out, in) channels before.
        """
        there = dict(self._module.named_modules())
        by_node: dict[fx.Node, list[Group]] = {}
        for group in groups:
            by_node.setdefault(self._features[group.producers[0]], []).append(group)
        live: dict[fx.Node, Activations] = {}
        decided: dict[str, Sequence[int]] = {}
        keeps: dict[str, Keep] = {}
        start = 0
        with progress.task("Selecting channels", len(by_node)) as task, torch.inference_mode():
            for node in sorted(by_node, key=self._place.__getitem__):
                end = self._place[node] + 1
                meter = ScatterMeter(by_node[node][0].producers[0])
                live = self._segment(live, start, end, batches, node, meter, limit)
                decided |= {group.name: decide(group, meter.scatter()) for group in by_node[node]}
                before, keeps = keeps, keeps_of(groups, decided, sizes)
                steps = {
                    name: further(before.get(name), keep)
                    for name, keep in keeps.items()
                    if before.get(name) != keep and name in there
                }
                apply_keeps_(self._module, steps)
                out = steps[by_node[node][0].producers[0]].out
                if out is not None and node in live:
                    live[node].take(out)
                start = end
                task.advance()
        for value in live.values():
            value.close()

    def _segment(
        self,
        live: dict[fx.Node, Activations],
        start: int,
        end: int,
        batches: Sequence[Labelled],
        measured: fx.Node,
        meter: ScatterMeter,
        limit: MemoryLimit,
    ) -> dict[fx.Node, Activations]:
        """Run the nodes from ``start`` to ``end`` on all batches; return what later nodes will read."""
        made = (node for node in self._nodes[start:end] if node is not self._input)
        outgoing = {node: Activations(limit) for node in made if self._last_use[node] >= end}
        for place, (images, label) in enumerate(batches):
            values = {self._input: images, **{node: value[place] for node, value in live.items()}}
            for node, value in self._run(values, start, end, {*outgoing, measured}):
                if node is measured:
                    meter.add(value, label)
                if node in outgoing:
                    outgoing[node].append(value)
        for node in [node for node in live if self._last_use[node] < end]:
            live.pop(node).close()
        return live | outgoing

    def _run(
        self, values: dict[fx.Node, torch.Tensor], start: int, end: int, wanted: Container[fx.Node]
    ) -> Iterator[tuple[fx.Node, torch.Tensor]]:
        """Run nodes one by one from ``values`` on and yield those in ``wanted``; dead values are let go."""
        self._interpreter.env = dict(values)
        for place in range(start, end):
            node = self._nodes[place]
            if node is not self._input:
                self._interpreter.env[node] = value = self._interpreter.run_node(node)
                if node in wanted:
                    yield node, value
            for source in (*node.all_input_nodes, node):
                if self._last_use[source] <= place:
                    self._interpreter.env.pop(source, None)

    def _feature_node(self, producer: str) -> fx.Node:
        node: fx.Node | None = next((n for n in self._nodes if n.op == "call_module" and n.target == producer), None)
        if node is None:
            raise ModelError(
                f"{producer} is not called as a module in the forward.", f'Set [prune] ignore = ["{producer}"].'
            )
        return [node, *channelwise_after(node, dict(self._module.named_modules()))][-1]


def channelwise_after(node: fx.Node, modules: Mapping[str, nn.Module]) -> list[fx.Node]:
    """The normalisations and activations that follow ``node``, each alone, in order."""
    found: list[fx.Node] = []
    while len(node.users) == 1:
        (node,) = node.users
        channelwise = (node.op == "call_module" and isinstance(modules[str(node.target)], CHANNELWISE_MODULES)) or (
            node.op == "call_function" and node.target in CHANNELWISE_FUNCTIONS
        )
        if not channelwise:
            break
        found.append(node)
    return found


def _fold_batch_norm_(module: fx.GraphModule) -> fx.GraphModule:
    """Give each convolution the normalisation that follows it alone, in place."""
    modules = dict(module.named_modules())
    for node in list(module.graph.nodes):
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        if not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None or norm.running_var is None:
            continue
        source = node.args[0]
        conv = modules.get(str(source.target)) if source.op == "call_module" else None
        calls = [other for other in module.graph.nodes if other.op == "call_module" and other.target == source.target]
        if isinstance(conv, nn.Conv2d) and len(source.users) == len(calls) == 1:
            conv.weight, bias = fuse_conv_bn_weights(
                conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            conv.bias = bias
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return module
