"""An ONNX network in any widths, to be timed: its graph as it is served, with weights that stand for any.

What a width costs does not depend on the weights' values, so networks of other widths share one file of random
weights and differ in their shapes alone: some kilobytes each, written in milliseconds, where an export takes seconds.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ModelError
from catro_deploy.files import replacing, write_bytes
from catro_deploy.graph.operators import Channels, Constants, Node, describe, follow, refusal
from catro_deploy.records import Keep

__all__ = ["WEIGHTS", "Skeleton", "layer_of"]

WEIGHTS = "weights.bin"
"""The file of random weights, in the folder of the networks that share it."""

# Keeps activations from fading into denormal numbers, which would run at another speed.
BIAS = 0.1
WEIGHTED = ("Conv", "Gemm")
SEPARATOR = "::"


def layer_of(name: str) -> str | None:
    """The layer that a node of a skeleton belongs to, by the node's name or that of its output."""
    layer, separator, _ = name.partition(SEPARATOR)
    return layer if separator else None


class Skeleton:
    """The graph of ``proto``, an exported network whose modules have ``sizes`` (out, in) channels.

    Every node belongs to a layer, a convolution or linear layer by its module's name: to itself, or to the one whose
    output it works on. Two modules must not have the same weights, for the exporter makes one of them.

    Raises:
        ModelError: the graph holds an operator whose shapes cannot be followed.
    """

    def __init__(self, proto: Any, sizes: Mapping[str, tuple[int, int]]) -> None:  # noqa: ANN401 - onnx.ModelProto
        from onnx import numpy_helper

        self._sizes = sizes
        self._arrays: dict[str, NDArray[Any]] = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
        self._proto = copy.deepcopy(proto)
        self._unshare_()
        self.operators: dict[str, tuple[str, ...]] = {}
        """What each layer's nodes do, in the order of execution."""
        self._name_nodes_()
        self._shapes = _tensor_shapes(self._proto)
        for field in (self._proto.graph.initializer, self._proto.graph.value_info, self._proto.metadata_props):
            del field[:]
        self._weights = {node.input[1] for node in self._proto.graph.node if node.op_type in WEIGHTED}
        self.resized({})

    def write_weights(self, path: Path) -> None:
        """Write random weights that every network of this skeleton can share, each tensor's at a place of its own.

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
        """Write the network whose modules keep what ``keeps`` says; WEIGHTS must lie beside ``path``.

        Raises:
            StorageError: the disk is full, or the folder cannot be written.
        """
        write_bytes(path, self.resized(keeps).SerializeToString())

    def resized(self, keeps: Mapping[str, Keep]) -> Any:  # noqa: ANN401 - onnx.ModelProto
        """The network whose modules keep what ``keeps`` says, its weights in WEIGHTS."""
        from onnx import numpy_helper

        proto = copy.deepcopy(self._proto)
        constants = self._follow_(proto.graph, keeps)
        places = dict(self._places())
        for name, array in self._arrays.items():
            if name in places:
                tensor = _outside(name, constants.shapes[name], places[name])
            elif name in constants.shapes:
                tensor = numpy_helper.from_array(np.full(constants.shapes[name], BIAS, np.float32), name)
            else:
                tensor = numpy_helper.from_array(constants.values.get(name, array), name)
            proto.graph.initializer.append(tensor)
        return proto

    def _places(self) -> Iterator[tuple[str, int]]:
        """Names of the weights in WEIGHTS, and where they begin, in bytes."""
        begin = 0
        for name, array in self._arrays.items():
            if name in self._weights:
                yield name, begin
                begin += 4 * array.size

    def _follow_(self, graph: Any, keeps: Mapping[str, Keep]) -> Constants:  # noqa: ANN401 - onnx.GraphProto
        """Follow the channels through ``graph``, whose convolutions get the groups that are left."""
        image = graph.input[0].name
        colours = self._shapes[image][1]
        channels: dict[str, Channels] = {image: (colours, colours)}
        constants = Constants(self._arrays, self._shapes)
        for node in graph.node:
            if node.op_type in WEIGHTED:
                channels[node.output[0]] = self._cut_(node, keeps, channels, constants)
            else:
                channels[node.output[0]] = follow(node, str(layer_of(node.name)), channels, constants)
        return constants

    def _cut_(
        self, node: Node, keeps: Mapping[str, Keep], channels: Mapping[str, Channels], constants: Constants
    ) -> Channels:
        """Note the shapes of a weighted node's constants; return the channels of what it puts out."""
        module = self._module(node)
        out, inputs = self._sizes[module]
        keep = keeps.get(module, Keep())
        new_out = out if keep.out is None else len(keep.out)
        attributes = {attribute.name: attribute for attribute in node.attribute}
        groups = attributes["group"].i if "group" in attributes else 1
        if groups > 1:  # each group of a grouped convolution keeps its width
            new_in = inputs * new_out // out if groups == out else inputs
            attributes["group"].i = groups * new_in // inputs
        else:
            new_in = inputs if keep.inputs is None else len(keep.inputs)
        if not new_out or not new_in:
            raise ModelError(f"At these widths {module} would be left without channels.", "Keep more channels.")
        if channels.get(node.input[0]) != (inputs, new_in):
            raise refusal(node, module)
        shape = self._arrays[node.input[1]].shape
        weight = (new_out, new_in // attributes["group"].i if groups > 1 else new_in, *shape[2:])
        transposed = node.op_type == "Gemm" and not ("transB" in attributes and attributes["transB"].i)
        constants.shapes[node.input[1]] = weight[::-1] if transposed else weight
        for name in node.input[2:]:  # the bias
            if name in self._arrays:
                constants.shapes[name] = tuple(new_out if size == out else size for size in self._arrays[name].shape)
        return out, new_out

    def _unshare_(self) -> None:
        """Give each node constants of its own: equal ones were made one, but will differ in width."""
        from onnx import numpy_helper

        seen: set[str] = set()
        for place, node in enumerate(self._proto.graph.node):
            for i, name in enumerate(node.input):
                weights = node.op_type in WEIGHTED and i == 1  # of one module that is used again
                if name in self._arrays and name in seen and not weights:
                    node.input[i] = f"{name}.{place}"
                    self._arrays[node.input[i]] = self._arrays[name]
                    self._proto.graph.initializer.append(numpy_helper.from_array(self._arrays[name], node.input[i]))
                seen.add(name)

    def _name_nodes_(self) -> None:
        """Name nodes and tensors after their layers, and gather ``operators``."""
        nodes = self._proto.graph.node
        first = next((self._module(node) for node in nodes if node.op_type in WEIGHTED), "the image")
        owners: dict[str, str] = {}
        renamed: dict[str, str] = {output.name: output.name for output in self._proto.graph.output}
        found: dict[str, list[str]] = {}
        for place, node in enumerate(nodes):
            layer = next((owners[name] for name in node.input if name in owners), first)
            if node.op_type in WEIGHTED:
                layer = self._module(node)
            found.setdefault(layer, []).append(describe(node))
            node.name = f"{layer}{SEPARATOR}{place}"
            owners.update(dict.fromkeys(node.output, layer))
            for i, name in enumerate(node.output):
                renamed.setdefault(name, f"{node.name}.{i}")
        for node in nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(name, name) for name in names]
        self.operators = {layer: tuple(types) for layer, types in found.items()}

    def _module(self, node: Node) -> str:
        name = str(node.input[1]).removesuffix(".weight")
        if name not in self._sizes or node.input[1] not in self._arrays:
            raise ModelError(
                f"The weights of a {node.op_type} are not those of one module: {node.input[1]}.",
                "Prune by multiply-accumulates: --budget 50%flops.",
            )
        return name


def _outside(name: str, shape: Sequence[int], begin: int) -> Any:  # noqa: ANN401 - onnx.TensorProto
    import onnx

    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", begin), ("length", 4 * math.prod(shape))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return tensor


def _tensor_shapes(proto: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401 - onnx.ModelProto
    """Shape of every tensor that has a known rank; sizes that are not known are 0."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(proto).graph
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
