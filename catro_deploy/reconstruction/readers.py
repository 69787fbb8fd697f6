"""The consumers of a group: Gram matrices of their inputs in the unpruned network.

One pass over some images serves all widths of all groups. A layer with very many columns is processed in blocks
of channels, each as if the other blocks were kept, to bound memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from catro_deploy.graph.coupling.layers import PRODUCERS
from catro_deploy.graph.cut.kinds import groups_of
from catro_deploy.progress import Progress
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.least_squares import Moments, factored, with_ridge
from catro_deploy.reconstruction.obs import Consumer
from catro_deploy.reconstruction.rows import column_channels, layer_of, positions_of, rows_at, weight_matrix, why_opaque
from catro_deploy.reconstruction.solve import CHUNK_BYTES, POSITIONS
from catro_deploy.records import Group

__all__ = ["Reader", "Readers", "readers_of"]

BLOCK_COLUMNS = 4608
"""Columns of the largest matrices: those of a 3x3 convolution of 512 channels."""


@dataclass(frozen=True)
class Reader:
    """A layer that reads a group: ``columns[c]`` of its weight matrix belong to channel c."""

    layer: str
    columns: torch.Tensor


def readers_of(group: Group, original: OriginalGraph) -> list[Reader]:
    """The layers whose weights show how the channels of ``group`` are used: those that mix them with others."""
    modules = dict(original.module.named_modules())
    called = {str(node.target) for node in original.module.graph.nodes if node.op == "call_module"}
    found = []
    for slot in group.slots:
        module = modules.get(slot.module)
        if slot.axis != "in" or slot.module not in called or not isinstance(module, PRODUCERS):
            continue
        if groups_of(module) > 1 or why_opaque(module):
            continue
        k = column_channels(layer_of(original.module, slot.module))
        order = sorted(range(len(slot.index)), key=lambda place: (slot.channel[place], slot.index[place]))
        inputs = torch.tensor([slot.index[place] for place in order]).view(group.width, -1)
        columns = (inputs[:, :, None] * k + torch.arange(k)).flatten(1)
        found.append(Reader(slot.module, columns))
    return found


class Readers:
    """Gram matrices of the inputs of ``layers``, from ``images``."""

    def __init__(
        self,
        original: OriginalGraph,
        layers: Sequence[str],
        images: Sequence[torch.Tensor],
        progress: Progress,
        seed: int = 0,
    ) -> None:
        self._original = original
        self._modules = {name: layer_of(original.module, name) for name in layers}
        device = images[0].device
        self._blocks: dict[str, list[torch.Tensor]] = {}
        self._moments: dict[str, list[Moments]] = {}
        for name, module in self._modules.items():
            _, columns, _ = weight_matrix(module).shape
            size = max(1, BLOCK_COLUMNS // column_channels(module)) * column_channels(module)
            ends = [(first, min(first + size, columns)) for first in range(0, columns, size)]
            self._blocks[name] = [torch.arange(first, end, device=device) for first, end in ends]
            self._moments[name] = [Moments(1, end - first, 0, device) for first, end in ends]
        self._measure(images, progress, torch.Generator().manual_seed(seed))

    def consumers(
        self,
        readers: Sequence[Reader],
        weights: Mapping[str, torch.Tensor] | None = None,
        scales: Mapping[str, float] | None = None,
    ) -> list[Consumer]:
        """The consumers for an elimination of the channels that ``readers`` read."""
        found = []
        for reader in readers:
            module = self._modules[reader.layer]
            matrix = weight_matrix(module)[0].double() if weights is None else weights[reader.layer]
            grams = [
                (m.centred_gram() if module.bias is not None else m.gram())[0] for m in self._moments[reader.layer]
            ]
            total = sum(
                float((matrix[block] * (gram @ matrix[block])).sum())
                for block, gram in zip(self._blocks[reader.layer], grams, strict=True)
            )
            for block, gram in zip(self._blocks[reader.layer], grams, strict=True):
                first, last = int(block[0]), int(block[-1])
                inside = ((reader.columns >= first) & (reader.columns <= last)).all(1)
                channels = inside.nonzero().flatten()
                if len(channels):
                    scale = (total or 1.0) if scales is None else scales[reader.layer]
                    found.append(Consumer(gram, matrix[block], channels, reader.columns[channels] - first, scale))
        return found

    def refit(self, reader: Reader, gone: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The best weights of a layer without the channels ``gone``, and the change of its bias.

        Weights have the layout of ``weight_matrix`` and are zero for removed channels; both are float64.
        """
        module = self._modules[reader.layer]
        before = weight_matrix(module)[0].double()
        after, shift = before.clone(), before.new_zeros(before.shape[1])
        lost = torch.zeros(len(before), dtype=torch.bool, device=before.device)
        lost[reader.columns[list(gone)].flatten()] = True
        for block, moments in zip(self._blocks[reader.layer], self._moments[reader.layer], strict=True):
            out = lost[block]
            if not bool(out.any()):
                continue
            gram = (moments.centred_gram() if module.bias is not None else moments.gram())[0]
            gram = with_ridge(gram[None])[0]
            kept, removed = block[~out], block[out]
            after[removed] = 0
            if len(kept):
                factor = factored(gram[~out][:, ~out][None])[0]
                after[kept] += torch.cholesky_solve(gram[~out][:, out] @ before[removed], factor)
            if module.bias is not None:
                shift += moments.mean()[0] @ (before[block] - after[block])
        return after, shift

    def _measure(self, images: Sequence[torch.Tensor], progress: Progress, generator: torch.Generator) -> None:
        graph = self._original.module.graph
        inputs: dict[fx.Node, list[fx.Node]] = {}
        for node in graph.nodes:
            if node.op == "call_module" and str(node.target) in self._modules:
                inputs.setdefault(node.all_input_nodes[0], []).append(node)
        interpreter = fx.Interpreter(self._original.module)
        order = list(graph.nodes)
        last_use = {source: place for place, node in enumerate(order) for source in node.all_input_nodes}
        end = max((place for place, node in enumerate(order) if node in inputs), default=0) + 1
        with progress.task("Collecting feature maps", len(images)) as task, torch.inference_mode():
            for batch in images:
                interpreter.env = {order[0]: batch}
                for place, node in enumerate(order[:end]):
                    if place:
                        interpreter.env[node] = interpreter.run_node(node)
                    for reader in inputs.get(node, ()):
                        output = self._original.shapes[reader.name]
                        self._add(str(reader.target), output, interpreter.env[node], generator)
                    for source in (*node.all_input_nodes, node):
                        if last_use.get(source, -1) <= place:
                            interpreter.env.pop(source, None)
                task.advance()

    def _add(self, layer: str, output: torch.Size, value: torch.Tensor, generator: torch.Generator) -> None:
        module = self._modules[layer]
        positions = positions_of(module, output, POSITIONS, generator)
        columns = sum(len(block) for block in self._blocks[layer])
        step = max(1, CHUNK_BYTES // (columns * len(positions) * value.element_size()))
        for first in range(0, len(value), step):
            rows = rows_at(module, value[first : first + step], positions)
            for block, moments in zip(self._blocks[layer], self._moments[layer], strict=True):
                moments.add(rows[:, :, int(block[0]) : int(block[-1]) + 1])
