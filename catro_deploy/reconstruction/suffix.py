"""Logits of a network, computed from a place in its graph onwards: the nodes before that place run only once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from catro_deploy.graph.fx.activations import Activations, MemoryLimit
from catro_deploy.graph.fx.features import is_only_read
from catro_deploy.reconstruction.walk import lent

__all__ = ["Suffix"]


class Suffix:
    """Runs ``module`` on batches of ``images``; holds maps at the place in memory up to ``limit``, then in a file."""

    def __init__(self, module: fx.GraphModule, images: Sequence[torch.Tensor], limit: MemoryLimit) -> None:
        self._module, self._images, self._limit = module, images, limit
        self._nodes = list(module.graph.nodes)
        self._at = 1
        self._kept: dict[fx.Node, Activations] = {}
        self._last_use = _last_uses(self._nodes)

    @property
    def known(self) -> Mapping[str, Activations]:
        """Values computed before the place that later nodes read, by node name."""
        return {node.name: kept for node, kept in self._kept.items()}

    def advance(self, place: int) -> None:
        """Advance to ``place`` (of a node in the graph), with the current weights of the module."""
        if place <= self._at:
            return
        live = [node for node in self._nodes[1:place] if self._last_use.get(node, -1) >= place]
        new = {
            n: Activations(self._limit, only_read=is_only_read(n, self._module)) for n in live if n not in self._kept
        }
        for values in self._run(self._module, self._nodes[self._at : place], list(new)):
            for node, kept in new.items():
                kept.append(values[node])
        for node in [node for node in self._kept if node not in live]:
            self._kept.pop(node).close()
        self._kept |= new
        self._at = place

    def move(self, place: int) -> None:
        """Move to ``place``; if it is before the current one, the network runs again from its beginning."""
        if place < self._at:
            self.close()
            self._at = 1
        self.advance(place)

    def logits(self, module: fx.GraphModule | None = None) -> Iterator[torch.Tensor]:
        """The network's logits for each batch, with its current weights.

        ``module``, if given, runs instead: a copy whose graph may differ after the place, but not before it.
        """
        module = module or self._module
        before = {node.name for node in self._nodes[: self._at]}
        *nodes, output = [node for node in module.graph.nodes if node.name not in before]
        for values in self._run(module, nodes, output.all_input_nodes):
            yield values[output.args[0]]

    def close(self) -> None:
        """Free everything."""
        for kept in self._kept.values():
            kept.close()
        self._kept = {}

    def _run(
        self, module: fx.GraphModule, nodes: Sequence[fx.Node], wanted: Sequence[fx.Node]
    ) -> Iterator[dict[Any, Any]]:
        """Run ``nodes``, which are after the place, for each batch; yield the values of ``wanted``."""
        last_use = _last_uses(nodes) | dict.fromkeys(wanted, len(nodes))
        known = {node: self.known[node.name] for node in last_use if node.name in self.known}
        interpreter, image = fx.Interpreter(module), module.graph.find_nodes(op="placeholder")[0]
        for batch in range(len(self._images)):
            env: dict[Any, Any] = {node: lent(kept, batch, node, module) for node, kept in known.items()}
            if image in last_use:
                env[image] = self._images[batch]  # only where needed: reading it may assemble the batch
            interpreter.env = env
            for place, node in enumerate(nodes):
                env[node] = interpreter.run_node(node)
                for source in node.all_input_nodes:
                    if last_use[source] <= place:
                        env.pop(source, None)
            yield env


def _last_uses(nodes: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """For each node, the place in ``nodes`` of the last one that reads it."""
    return {source: place for place, node in enumerate(nodes) for source in node.all_input_nodes}
