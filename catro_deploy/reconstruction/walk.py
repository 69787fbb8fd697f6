"""Runs a graph part by part over all batches, and keeps the values that later parts read."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from catro_deploy.graph.fx.activations import Activations, MemoryLimit, map_tensors
from catro_deploy.graph.fx.features import is_only_read

__all__ = ["Walk", "lent"]


class Walk:
    """Computes the ``needed`` nodes, stop by stop, for every batch of ``images``; each node runs once.

    Feature maps that a later stop reads are kept in memory up to ``limit``, then in a file. ``known`` values of nodes,
    by name and for the same batches, are read instead of computed; the caller still owns them.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        needed: Sequence[Sequence[fx.Node]],
        images: Sequence[torch.Tensor],
        limit: MemoryLimit,
        known: Mapping[str, Activations] | None = None,
    ) -> None:
        self._interpreter = fx.Interpreter(module)
        self._module, self._images, self._needed, self._limit = module, images, needed, limit
        self._input = module.graph.find_nodes(op="placeholder")[0]
        self._known = {node: known[node.name] for node in module.graph.nodes if known and node.name in known}
        self._runs = _scheduled(module.graph, needed, self._known)
        self._last_stop = self._last_stops()
        self._kept: dict[fx.Node, Activations] = {}

    def values(self, stop: int) -> Iterator[dict[fx.Node, Any]]:
        """The values of the needed nodes of ``stop``, batch by batch; visit stops in order, and exhaust each."""
        run, wanted = self._runs[stop], self._needed[stop]
        keep = [node for node in (*run, *wanted) if self._last_stop[node] > stop and node not in self._kept]
        keep = [node for node in dict.fromkeys(keep) if node is not self._input and node not in self._known]
        kept = {node: Activations(self._limit, only_read=is_only_read(node, self._module)) for node in keep}
        done = [node for node in self._kept if self._last_stop[node] <= stop]
        inside = set(run)
        read = {source for node in run for source in node.all_input_nodes} | set(wanted)
        local = {source: at for at, node in enumerate(run) for source in node.all_input_nodes if source in inside}
        for batch in range(len(self._images)):
            env = {node: self._kept[node][batch] for node in read if node in self._kept}
            env |= {n: lent(self._known[n], batch, n, self._module) for n in read if n in self._known}
            if self._input in read:
                env[self._input] = self._images[batch]  # only where needed: reading it may assemble the batch
            self._interpreter.env = env
            for at, node in enumerate(run):
                env[node] = self._interpreter.run_node(node)
                if node in kept:
                    kept[node].append(env[node])
                for source in node.all_input_nodes:
                    if local.get(source) == at and source not in wanted:
                        env.pop(source, None)
            yield {node: env[node] for node in wanted}
            self._interpreter.env = {}
            for node in done:
                self._kept[node].release(batch)
        for node in done:
            self._kept.pop(node).close()
        self._kept |= kept

    def close(self) -> None:
        """Free everything."""
        for value in self._kept.values():
            value.close()
        self._kept = {}

    def _last_stops(self) -> dict[fx.Node, int]:
        """The last stop at which each node is read."""
        last: dict[fx.Node, int] = {}
        for stop, (run, wanted) in enumerate(zip(self._runs, self._needed, strict=True)):
            for node in run:
                last.setdefault(node, stop)
                last |= dict.fromkeys(node.all_input_nodes, stop)
            last |= dict.fromkeys(wanted, stop)
        return last


def lent(kept: Activations, batch: int, node: fx.Node, module: fx.GraphModule) -> Any:  # noqa: ANN401
    """The value of a batch for the readers of ``node`` in ``module``; a copy if they may overwrite it."""
    value = kept[batch]
    return value if is_only_read(node, module) else map_tensors(value, torch.clone)


def _scheduled(graph: fx.Graph, needed: Sequence[Sequence[fx.Node]], known: Collection[fx.Node]) -> list[list[fx.Node]]:
    """The nodes to run for each stop, in the order of the graph: the needed ones and their inputs."""
    order = list(graph.nodes)
    done: set[fx.Node] = {order[0], *known}
    runs = []
    for wanted in needed:
        due: set[fx.Node] = set()
        waiting = [node for node in wanted if node not in done]
        while waiting:
            node = waiting.pop()
            if node not in due:
                due.add(node)
                waiting += [source for source in node.all_input_nodes if source not in done]
        runs.append([node for node in order if node in due])
        done |= due
    return runs
