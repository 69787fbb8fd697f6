"""Answers of a network from some place in its graph on: what runs before that place runs once."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from catro_deploy.graph.fx.activations import Activations, MemoryLimit
from catro_deploy.graph.fx.features import is_only_read

__all__ = ["Suffix"]


class Suffix:
    """Runs ``module`` on batches of ``images``; feature maps at the place are kept up to ``limit``, then in a file."""

    def __init__(self, module: fx.GraphModule, images: Sequence[torch.Tensor], limit: MemoryLimit) -> None:
        self._module, self._images, self._limit = module, images, limit
        self._nodes = list(module.graph.nodes)
        self._at = 1
        self._kept: dict[fx.Node, Activations] = {}
        place = {node: at for at, node in enumerate(self._nodes)}
        self._last_use = {node: max((place[user] for user in node.users), default=-1) for node in self._nodes}

    def advance(self, place: int) -> None:
        """Go on to ``place`` (of a node in the graph), with the weights that the module has now."""
        if place <= self._at:
            return
        live = [node for node in self._nodes[1:place] if self._last_use[node] >= place]
        new = {
            n: Activations(self._limit, only_read=is_only_read(n, self._module)) for n in live if n not in self._kept
        }
        for batch in range(len(self._images)):
            env = self._run(batch, place)
            for node, kept in new.items():
                kept.append(env[node])
        for node in [node for node in self._kept if node not in live]:
            self._kept.pop(node).close()
        self._kept |= new
        self._at = place

    def logits(self) -> Iterator[torch.Tensor]:
        """What the network answers to each batch, with the weights that the module has now."""
        output = self._nodes[-1]
        for batch in range(len(self._images)):
            yield self._run(batch, len(self._nodes) - 1)[output.args[0]]

    def close(self) -> None:
        """Let go of everything."""
        for kept in self._kept.values():
            kept.close()

    def _run(self, batch: int, end: int) -> dict[Any, Any]:
        """The values that are still read from ``end`` on."""
        env: dict[Any, Any] = {node: kept[batch] for node, kept in self._kept.items()}
        env[self._nodes[0]] = self._images[batch]
        interpreter = fx.Interpreter(self._module)
        interpreter.env = env
        for place in range(self._at, end):
            node = self._nodes[place]
            env[node] = interpreter.run_node(node)
            for source in node.all_input_nodes:
                if self._last_use[source] <= place:
                    env.pop(source, None)
        return env
