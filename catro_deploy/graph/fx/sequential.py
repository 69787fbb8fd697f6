"""Channel selection layer by layer, on pruned inputs: each group is decided when its first producer has run.

Each decision needs a pass over all batches. A pass continues from the checkpoint, the values that an earlier pass kept.
Where keeping more would cost more than recomputing it, as with the large first maps of many images, less is kept.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import fx

from catro_deploy.catro.scatter import Scatter, ScatterMeter
from catro_deploy.graph.cut.sizes import stored_sizes
from catro_deploy.graph.cut.surgery import apply_keeps_, further, keeps_of
from catro_deploy.graph.fx.activations import Activations, MemoryLimit, size_bytes
from catro_deploy.graph.fx.features import FeatureGraph, Labelled, summed
from catro_deploy.memory import reused_pages
from catro_deploy.progress import Progress
from catro_deploy.records import Group, Keep

__all__ = ["select_in_order"]

LATER_PASSES = 2
"""How many passes are expected to start from a checkpoint."""
LARGEST_SHARE_OF_DISK = 0.8


def select_in_order(
    graph: FeatureGraph,
    groups: Sequence[Group],
    sizes: Mapping[str, tuple[int, int]],
    batches: Sequence[Labelled],
    decide: Callable[[Group, Scatter], Sequence[int]],
    limit: MemoryLimit,
    progress: Progress,
) -> None:
    """Prune the module of ``graph``, group by group in the order of execution; the graph must not be used afterwards.

    Each group is decided when all calls of its first producer have run, on inputs that are already pruned: ``decide``
    is called with that producer's scatter, at full width, and returns the channels to keep. ``sizes`` are the (out, in)
    channels before pruning.
    """
    by_producer: dict[str, list[Group]] = {}
    for group in sorted(groups, key=lambda group: graph.place[graph.calls[group.producers[0]][0]]):
        by_producer.setdefault(group.producers[0], []).append(group)
    module = graph.module
    present = {name for name, _ in (*module.named_modules(), *module.named_parameters(), *module.named_buffers())}
    present |= stored_sizes(module, sizes).keys()
    walk = _Walk(graph, batches, limit)
    decided: dict[str, Sequence[int]] = {}
    keeps: dict[str, Keep] = {}
    with progress.task("Selecting channels", len(by_producer)) as task, torch.inference_mode(), reused_pages():
        for producer in by_producer:
            scatter = walk.measure(producer)
            whole = _widened(scatter, keeps.get(producer, Keep()).out, sizes[producer][0])
            decided |= {group.name: decide(group, whole) for group in by_producer[producer]}
            before, keeps = keeps, keeps_of(groups, decided, sizes)
            steps = {
                name: further(before.get(name), keep)
                for name, keep in keeps.items()
                if before.get(name) != keep and name in present
            }
            apply_keeps_(module, steps)
            walk.cut(producer, steps[producer].out)
            task.advance()
    walk.close()


class _Walk:
    """Passes over all batches, each starting from the checkpoint that earlier passes left."""

    def __init__(self, graph: FeatureGraph, batches: Sequence[Labelled], limit: MemoryLimit) -> None:
        self._graph = graph
        self._batches = batches
        self._limit = limit
        self._labels = [0] * len(batches)
        self._at = 0
        self._kept: dict[fx.Node, Activations] = {}

    def measure(self, producer: str) -> Scatter:
        """Scatter of the feature maps of ``producer``, all calls together."""
        graph, features = self._graph, self._graph.features(producer)
        first, end = graph.place[graph.calls[producer][0]], graph.place[features[-1]] + 1
        # Another producer in between may belong to the same group: its feature map would have to be cut as well.
        between = any(first < graph.place[call] < end for calls in graph.calls.values() for call in calls)
        complete = len(features) == 1 and not between
        stop = self._checkpoint(first, end, complete)
        meters = {node: ScatterMeter(producer) for node in features}
        axis = graph.channel_axis(producer)
        outgoing = {
            node: Activations(self._limit, only_read=graph.is_only_read(node))
            for node in self._live(stop)
            if node not in self._kept
        }
        done = [node for node in self._kept if graph.last_use[node] < stop]
        legs = [(self._at, stop), (stop, end)] if stop < end else [(self._at, end)]
        read = self._read(end)
        for batch in range(len(self._batches)):
            values = self._values(batch, read)
            for start, halt in legs:
                for node, value in graph.run(values, start, halt, meters):
                    meters[node].add(value.movedim(axis, 1), self._labels[batch])
                values = graph.values()
                if halt == stop:
                    for node, kept in outgoing.items():
                        kept.append(values[node])
            for node in done:  # not earlier, since some of ``values`` may be views of it
                self._kept[node].release(batch)
        for node in done:
            self._kept.pop(node).close()
        self._kept |= outgoing
        self._at = stop
        return summed([meters[node].scatter() for node in features])

    def cut(self, producer: str, channels: Sequence[int] | None) -> None:
        """Keep only ``channels`` of the feature map of ``producer``, if it is part of the checkpoint."""
        kept = self._kept.get(self._graph.features(producer)[0])
        if kept is not None and channels is not None:
            kept.take(channels, self._graph.channel_axis(producer))

    def close(self) -> None:
        """Free everything."""
        for value in self._kept.values():
            value.close()

    def _read(self, end: int) -> list[fx.Node]:
        """The part of the checkpoint that a pass to ``end`` reads: not a residual block's input before its addition."""
        read = {source for node in self._graph.nodes[self._at : end] for source in node.all_input_nodes}
        return [node for node in self._kept if node in read]

    def _values(self, batch: int, read: Sequence[fx.Node]) -> dict[fx.Node, object]:
        """The values that a pass over ``batch`` starts from; images are normalised only where a node reads them."""
        values: dict[fx.Node, object] = {node: self._kept[node][batch] for node in read}
        if self._graph.last_use[self._graph.input] >= self._at:
            values[self._graph.input], self._labels[batch] = self._batches[batch]
        return values

    def _live(self, place: int) -> list[fx.Node]:
        """Nodes before ``place`` that later nodes read; the images are always available."""
        nodes = self._graph.nodes[:place]
        return [node for node in nodes if self._graph.last_use[node] >= place and node is not self._graph.input]

    def _checkpoint(self, first: int, end: int, complete: bool) -> int:
        """Where the next passes start: the place that saves the most time.

        That may be any place up to ``first``, the call that is measured next, or the ``end`` of its feature map if all
        that ran until there is decided by then (``complete``).
        """
        taken_s, value_bytes = self._survey(end)
        file_speed = self._limit.file.bytes_per_second
        best, best_s = self._at, 0.0
        for place in taken_s:
            if not (place <= first or (complete and place == end)):
                continue
            to_file, from_file = self._file_bytes(place, value_bytes)
            spared_s = taken_s[place] + (from_file - to_file) / file_speed
            saved_s = LATER_PASSES * spared_s - to_file / file_speed
            if saved_s > best_s and to_file <= LARGEST_SHARE_OF_DISK * self._limit.file.room_bytes:
                best, best_s = place, saved_s
        return best

    def _survey(self, end: int) -> tuple[dict[int, float], dict[fx.Node, int]]:
        """From the first batch, for all: seconds from the checkpoint to each place, and the bytes of each value."""
        graph, count = self._graph, len(self._batches)
        taken_s, value_bytes = {self._at: 0.0}, {}
        start = time.perf_counter()
        for node, value in graph.run(self._values(0, self._read(end)), self._at, end, graph.place):
            taken_s[graph.place[node] + 1] = (time.perf_counter() - start) * count
            value_bytes[node] = size_bytes(value) * count
        return taken_s, value_bytes

    def _file_bytes(self, place: int, value_bytes: Mapping[fx.Node, int]) -> tuple[int, int]:
        """The bytes that a checkpoint at ``place`` writes to a file, and those that no longer need to be read."""
        done = [value for node, value in self._kept.items() if self._graph.last_use[node] < place]
        new_bytes = sum(value_bytes[node] for node in self._live(place) if node not in self._kept)
        free_bytes = self._limit.left_bytes + sum(value.claimed_bytes for value in done)
        return max(0, new_bytes - free_bytes), sum(value.spilled_bytes for value in done)


def _widened(scatter: Scatter, present: Sequence[int] | None, size: int) -> Scatter:
    """``scatter`` of the ``present`` channels, widened to ``size`` channels with zeros for those already removed."""
    if present is None:
        return scatter
    between, within = np.zeros(size), np.zeros(size)
    between[list(present)], within[list(present)] = scatter.between, scatter.within
    return Scatter(between, within)
