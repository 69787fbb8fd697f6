"""Write networks in other widths by cutting and exporting each of them: slow, but correct for every network."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from catro_deploy.files import write_bytes
from catro_deploy.graph.cut.surgery import apply_keeps_
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.onnx.skeleton import Skeleton
from catro_deploy.latency.template import weights_of
from catro_deploy.records import Keep

__all__ = ["Exports"]


@dataclass(frozen=True)
class Exports:
    """Writes what ``skeleton`` would write if it knew the shapes, by exporting a cut ``model`` (eval mode, CPU).

    ``layers`` are its convolutions and linear layers. Each network takes seconds; a skeleton takes milliseconds.
    """

    model: nn.Module
    skeleton: Skeleton
    layers: tuple[str, ...]
    input_shape: tuple[int, int, int]
    opset: int
    dynamic_batch: bool

    @property
    def operators(self) -> Mapping[str, tuple[str, ...]]:
        """The operators of each layer's nodes, in the order of execution."""
        return self.skeleton.operators

    def write(self, keeps: Mapping[str, Keep], path: Path) -> None:
        """Write the network whose modules keep the channels in ``keeps``.

        The skeleton's weights must be in the same folder.

        Raises:
            ModelError: the remaining network cannot be exported.
            StorageError: the disk is full, or the folder cannot be written.
        """
        import onnx

        cut = apply_keeps_(copy.deepcopy(self.model), keeps)
        export_onnx(cut, self.input_shape, path, opset=self.opset, dynamic_batch=self.dynamic_batch, metadata={})
        proto = onnx.load(path)
        self.skeleton.adopt_(proto, weights_of(cut, self.layers))
        write_bytes(path, proto.SerializeToString())
