"""Feature maps of a network's layers, all of them in one pass; sequential.py computes them layer by layer.

A layer's feature map is what its consumers read: the output of the convolution after the normalisation and activation
that are its only readers. A layer that is called several times has one feature map per call; their scatters are summed.
"""

import operator
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from catro_deploy.catro.scatter import Scatter, ScatterMeter
from catro_deploy.graph.coupling.layers import list_layers
from catro_deploy.graph.fx.folding import fold_batch_norm_, has_hooks
from catro_deploy.graph.tracing.symbolic import evaluation_graph
from catro_deploy.memory import reused_pages

__all__ = ["FeatureGraph", "Labelled", "channelwise_after", "images_at_once", "is_only_read", "summed"]

Labelled = tuple[torch.Tensor, int]
"""A batch of normalised images (n, channels, height, width), all of one class, and that class."""

CHANNELWISE_MODULES = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.GELU, nn.SiLU,
    nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.Mish, nn.Dropout, nn.Dropout2d, nn.Identity,
)  # fmt: skip
CHANNELWISE_FUNCTIONS = (
    torch.relu, functional.relu, functional.relu6, functional.leaky_relu, functional.elu, functional.gelu,
    functional.silu, functional.mish, functional.hardswish, functional.hardsigmoid, torch.sigmoid, torch.tanh,
    functional.dropout,
)  # fmt: skip
# These neither overwrite their input nor return a view of it, whatever their settings.
READING_MODULES = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.MaxPool2d, nn.AvgPool2d)
READING_FUNCTIONS = (operator.add, torch.add, operator.mul, torch.mul, torch.cat)

CACHED_MAP_BYTES = 16 * 2**20
"""Feature maps of about this size are still in a processor's cache when the next layer reads them."""
FEWEST_IMAGES = 4
"""With fewer, merging the means of the batches costs more than smaller maps save."""


class FeatureGraph:
    """The graph of a copy of a module in eval mode, and the nodes that hold each producer's feature maps.

    Normalisation is folded into the convolutions of the copy, which changes feature maps by rounding only. ``hidden``
    maps the producers without nodes, because the graph only calls a module around them, to the reason; they have no
    scatter. Modules in ``ignore`` (names or prefixes) are not traced; the numbers named in ``sizes`` may change with
    the module. If the forward branches or loops on sizes, those of images of ``input_shape`` (channels, height, width)
    decide.

    Raises:
        ModelError: the model's own forward cannot be traced.
    """

    def __init__(
        self,
        model: nn.Module,
        producers: Sequence[str],
        ignore: Sequence[str] = (),
        sizes: Collection[str] = (),
        input_shape: tuple[int, int, int] | None = None,
    ) -> None:
        traced = evaluation_graph(model, ignore, sizes, input_shape)
        reasons = {name: traced.why_hidden(name) for name in producers}
        self.hidden: Mapping[str, str] = {name: reason for name, reason in reasons.items() if reason}
        self.module = traced.module
        fold_batch_norm_(self.module)
        self.nodes = [node for node in self.module.graph.nodes if node.op != "output"]
        self.input = self.nodes[0]
        self.place = {node: place for place, node in enumerate(self.nodes)}
        end = len(self.nodes)
        self.last_use = {n: max((self.place.get(u, end) for u in n.users), default=-1) for n in self.nodes}
        self.calls = {
            name: self.module.graph.find_nodes(op="call_module", target=name)
            for name in producers
            if name not in self.hidden
        }
        self._interpreter = fx.Interpreter(self.module)

    def features(self, producer: str) -> list[fx.Node]:
        """The node of each feature map of ``producer``, in the order of execution."""
        modules = dict(self.module.named_modules())
        return [[call, *channelwise_after(call, modules)][-1] for call in self.calls[producer]]

    def channel_axis(self, producer: str) -> int:
        """The axis of the channels in a producer's feature maps: the last one for a linear layer."""
        return -1 if isinstance(self.module.get_submodule(producer), nn.Linear) else 1

    def is_only_read(self, node: fx.Node) -> bool:
        """Whether all readers of ``node`` are known not to change it."""
        return is_only_read(node, self.module)

    def scatters(self, batches: Iterator[Labelled] | Sequence[Labelled]) -> dict[str, Scatter]:
        """Scatter of every producer's feature maps, in one pass over ``batches``, which are ordered by class.

        Raises:
            NumericsError: a feature map is not finite.
            DataError: fewer than two classes.
        """
        names = {node: name for name in self.calls for node in self.features(name)}
        meters = {node: ScatterMeter(name) for node, name in names.items()}
        end = max((self.place[node] for node in meters), default=0) + 1
        with torch.inference_mode(), reused_pages():
            for images, label in batches:
                for node, value in self.run({self.input: images}, 0, end, meters):
                    meters[node].add(value.movedim(self.channel_axis(names[node]), 1), label)
        return {name: summed([meters[node].scatter() for node in self.features(name)]) for name in self.calls}

    def run(
        self, values: Mapping[fx.Node, Any], start: int, end: int, wanted: Container[fx.Node]
    ) -> Iterator[tuple[fx.Node, Any]]:
        """Run the nodes from ``start`` to ``end`` on ``values`` and yield those in ``wanted``; free dead values."""
        self._interpreter.env = dict(values)
        for place in range(start, end):
            node = self.nodes[place]
            if node is not self.input:
                self._interpreter.env[node] = value = self._interpreter.run_node(node)
                if node in wanted:
                    yield node, value
            for source in (*node.all_input_nodes, node):
                if self.last_use[source] <= place:
                    self._interpreter.env.pop(source, None)

    def values(self) -> dict[fx.Node, Any]:
        """The values that nodes after the last run will read."""
        return dict(self._interpreter.env)


def is_only_read(node: fx.Node, module: fx.GraphModule) -> bool:
    """Whether all readers of ``node`` in the graph of ``module`` are known not to change it."""
    return all(_only_reads(user, module) for user in node.users)


def _only_reads(user: fx.Node, module: fx.GraphModule) -> bool:
    if user.op == "call_module":
        called = module.get_submodule(str(user.target))
        return type(called) in READING_MODULES and not has_hooks(called)
    return user.op == "call_function" and user.target in READING_FUNCTIONS and "out" not in user.kwargs


def images_at_once(model: nn.Module, input_shape: tuple[int, int, int], most: int) -> int:
    """How many images of ``input_shape`` (channels, height, width), at most ``most``, to run together on a CPU.

    Fewer than ``most`` if the largest feature map would be far larger than a cache, but at least one for each thread.

    Raises:
        ModelError: the model fails on such images, or has no layers.
    """
    largest = max(layer.positions * layer.out_channels for layer in list_layers(model, input_shape))
    fitting = CACHED_MAP_BYTES // (largest * torch.float32.itemsize)
    return min(most, max(fitting, FEWEST_IMAGES, torch.get_num_threads()))


def summed(scatters: Sequence[Scatter]) -> Scatter:
    """The scatter of all feature maps of one layer together."""
    return Scatter(sum(one.between for one in scatters), sum(one.within for one in scatters))  # type: ignore[arg-type]


def channelwise_after(node: fx.Node, modules: Mapping[str, nn.Module]) -> list[fx.Node]:
    """The normalisations and activations after ``node``, in order, each the only reader of the one before."""
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
