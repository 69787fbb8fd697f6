"""An ONNX network at any widths, for timing: its graph as it is deployed, in milliseconds; an export takes seconds.

Latency does not depend on the weights' values, so networks of all widths can share one file of random weights and
differ only in their shapes: a few kilobytes each. Or each network has its part of the exported weights.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.files import replacing, write_bytes
from catro_deploy.graph.onnx.flow import Flow, sizes_of, whole
from catro_deploy.graph.onnx.onnx_layers import layer_of, modules_of, name_nodes_, weight_of
from catro_deploy.graph.onnx.operators import follow
from catro_deploy.graph.onnx.weighted import cut_
from catro_deploy.records import Keep

__all__ = ["WEIGHTS", "Skeleton"]

WEIGHTS = "weights.bin"
"""The file of random weights, in the folder of the networks that share it."""

# Keeps activations from underflowing to denormal numbers, which would run at another speed.
BIAS = 0.1


class Skeleton:
    """The graph of ``proto``, an exported network whose modules have ``sizes`` (out, in) channels.

    Every node belongs to a convolution or linear layer, named after its module: a layer's own node to that layer, any
    other node to the layer whose output it works on. Two modules must not have the same weights, since the exporter
    merges them. ``weights`` are those of the layers by name, since the exporter does not name all of them.
    """

    def __init__(
        self,
        proto: Any,  # noqa: ANN401 - onnx.ModelProto
        sizes: Mapping[str, tuple[int, int]],
        weights: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        from onnx import numpy_helper

        self._sizes = sizes
        self._arrays: dict[str, NDArray[Any]] = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
        self._proto = copy.deepcopy(proto)
        self._modules = modules_of(self._proto.graph, self._arrays, sizes, weights or {})
        self._unshare_()
        self.operators = name_nodes_(self._proto.graph, self._modules, self._arrays)
        """What each layer's nodes do, in the order of execution."""
        self._shapes = _tensor_shapes(self._proto)
        for field in (self._proto.graph.initializer, self._proto.graph.value_info, self._proto.metadata_props):
            del field[:]
        self._weights = {weight_of(node, self._arrays) for node in self._proto.graph.node}

    def write_weights(self, path: Path) -> None:
        """Write random weights that every network of this skeleton can share, each tensor at its own offset.

        Raises:
            StorageError: the disk is full, or the folder cannot be written.
        """
        generator = np.random.default_rng(0)
        with replacing(path) as temporary, temporary.open("wb") as file:
            for name, _ in self._places():
                shape = self._arrays[name].shape
                # He's initialisation: activations keep their size from layer to layer.
                scale = np.float32(math.sqrt(2 / math.prod(shape[1:])))
                file.write((generator.standard_normal(shape, dtype=np.float32) * scale).tobytes())

    def write(self, keeps: Mapping[str, Keep], path: Path) -> None:
        """Write the network whose modules keep the channels in ``keeps``; WEIGHTS must be in the same folder.

        Raises:
            ModelError: its shapes are not known.
            StorageError: the disk is full, or the folder cannot be written.
        """
        write_bytes(path, self.resized(keeps).SerializeToString())

    def resized(self, keeps: Mapping[str, Keep]) -> Any:  # noqa: ANN401 - onnx.ModelProto
        """The network whose modules keep the channels in ``keeps``, with its weights in WEIGHTS.

        Raises:
            ModelError: its shapes are not known.
        """
        from onnx import numpy_helper

        proto = copy.deepcopy(self._proto)
        flow = self._follow_(proto.graph, keeps)
        places = dict(self._places())
        for name, array in self._arrays.items():
            left = sizes_of(flow.cut.get(name, whole(array.shape)))
            if name in places:
                tensor = _outside(name, left, places[name])
            elif name in flow.cut:
                tensor = numpy_helper.from_array(np.full(left, BIAS, np.float32), name)
            else:
                tensor = numpy_helper.from_array(flow.values.get(name, array), name)
            proto.graph.initializer.append(tensor)
        return proto

    def cut(self, keeps: Mapping[str, Keep]) -> Any:  # noqa: ANN401 - onnx.ModelProto
        """The network whose modules keep the channels in ``keeps``, with what they keep of the exported weights.

        Raises:
            ModelError: its shapes are not known.
        """
        from onnx import numpy_helper

        proto = copy.deepcopy(self._proto)
        flow = self._follow_(proto.graph, keeps)
        for name, array in self._arrays.items():
            left = array[np.ix_(*flow.cut[name])] if name in flow.cut else flow.values.get(name, array)
            proto.graph.initializer.append(numpy_helper.from_array(left, name))
        return proto

    def adopt_(self, proto: Any, weights: Mapping[str, NDArray[Any]]) -> None:  # noqa: ANN401 - onnx.ModelProto
        """Name the nodes of ``proto`` after their layers, and take its weights from WEIGHTS.

        ``proto`` is an export of the same network with fewer channels; ``weights`` are those of its layers by name.
        """
        from onnx import numpy_helper

        graph = proto.graph
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        modules = modules_of(graph, arrays, self._sizes, weights)
        name_nodes_(graph, modules, arrays)
        full = {
            self._modules[name]: (begin, self._arrays[name].size)
            for name, begin in self._places()
            if name in self._modules
        }
        for tensor in graph.initializer:
            begin, size = full.get(modules.get(tensor.name, ""), (0, 0))
            if arrays[tensor.name].size <= size:
                tensor.CopyFrom(_outside(tensor.name, tensor.dims, begin))

    def _places(self) -> Iterator[tuple[str, int]]:
        """Names of the weights in WEIGHTS, and their offsets in bytes."""
        begin = 0
        for name, array in self._arrays.items():
            if name in self._weights:
                yield name, begin
                begin += 4 * array.size

    def _follow_(self, graph: Any, keeps: Mapping[str, Keep]) -> Flow:  # noqa: ANN401 - onnx.GraphProto
        """Follow what is left through ``graph``; its grouped convolutions get the number of groups that are left."""
        flow = Flow(self._arrays, self._shapes)
        flow.kept[graph.input[0].name] = whole(self._shapes[graph.input[0].name])
        for node in graph.node:
            module = self._modules.get(str(weight_of(node, self._arrays)))
            if module is None:
                follow(node, str(layer_of(node.name)), flow)
            else:
                cut_(node, module, self._sizes[module], keeps.get(module, Keep()), flow)
        return flow

    def _unshare_(self) -> None:
        """Give each node its own constants: equal ones were merged, but will differ in width."""
        from onnx import numpy_helper

        seen: set[str] = set()
        for place, node in enumerate(self._proto.graph.node):
            weight = weight_of(node, self._arrays)  # shared if one module is used again
            for i, name in enumerate(node.input):
                if name in self._arrays and name in seen and name != weight:
                    node.input[i] = f"{name}.{place}"
                    self._arrays[node.input[i]] = self._arrays[name]
                    self._proto.graph.initializer.append(numpy_helper.from_array(self._arrays[name], node.input[i]))
                seen.add(name)


def _outside(name: str, shape: Sequence[int], begin: int) -> Any:  # noqa: ANN401 - onnx.TensorProto
    import onnx

    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", begin), ("length", 4 * math.prod(shape))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return tensor


def _tensor_shapes(proto: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401 - onnx.ModelProto
    """Shape of every tensor that has a known rank; a batch of any size counts as 1."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    return {
        value.name: tuple(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
