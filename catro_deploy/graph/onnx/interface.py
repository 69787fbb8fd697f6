"""What an ONNX network takes and returns: normalised images or raw pixels; logits or probabilities, and the top ones.

Preprocessing is one Cast, a Transpose for NHWC, and one BatchNormalization, which scales and shifts each channel in a
single pass. The Cast comes first, since TensorRT feeds uint8 to no other layer (NVIDIA/TensorRT issue 3985). The first
output has all classes, whatever else is returned, so that the network can be verified.
"""

import copy
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import ModelError, NumericsError
from catro_deploy.files import write_bytes
from catro_deploy.settings.deploy import ExportSettings

__all__ = [
    "PLAIN",
    "Interface",
    "attach_",
    "plain_copy",
    "with_interface",
    "without_interface",
    "write_interface",
]

Proto = Any
"""An onnx.ModelProto, which has no annotations."""

LARGEST_PIXEL = 255
# Names of the nodes and constants that are added begin with one of these.
BEFORE, AFTER = "preprocess/", "postprocess/"
TOP_K = f"{AFTER}k"
TOP = ("top_values", "top_classes")
"""Names of the outputs for the largest values, and for the indices of their classes."""
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
# Allowed difference of normalised pixels, relative to the largest: folded scale and shift round differently in float32.
AGREEMENT = 1e-5


@dataclass(frozen=True)
class Interface:
    """The type and layout of the input, and what is returned; ``mean`` and ``std`` are those of pixels in 0..1.

    With ``top_k`` there are two more outputs, (batch, top_k): the largest logits or probabilities, and their classes.
    """

    input: Literal["float", "uint8"] = "float"
    layout: Literal["nchw", "nhwc"] = "nchw"
    output: Literal["logits", "softmax"] = "logits"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    top_k: int = 0

    @classmethod
    def of(cls, settings: ExportSettings, mean: Sequence[float], std: Sequence[float]) -> "Interface":
        """The interface that ``settings`` request, for a network of images normalised by ``mean`` and ``std``."""
        return cls(settings.input, settings.layout, settings.output, tuple(mean), tuple(std), settings.top_k)

    @property
    def is_plain(self) -> bool:
        """Whether this is the interface of the network itself: normalised NCHW images to logits."""
        plain = PLAIN.input, PLAIN.layout, PLAIN.output, PLAIN.top_k
        return (self.input, self.layout, self.output, self.top_k) == plain

    @property
    def words(self) -> str:
        """A description in one line, such as ``uint8 NHWC pixels, normalised inside the network; softmax``."""
        images = "uint8 {} pixels, normalised inside the network" if self.input == "uint8" else "float32 {}, normalised"
        top = f" and top {self.top_k}" if self.top_k else ""
        return f"{images.format(self.layout.upper())}; {self.output}{top}"


PLAIN = Interface()
"""The interface of the network itself."""


def with_interface(proto: Proto, interface: Interface) -> Proto:
    """``proto``, which maps normalised NCHW images to logits, with ``interface`` instead."""
    found = copy.deepcopy(proto)
    graph = found.graph
    before, constants = _preprocessing(graph.input[0].name, interface)
    softmax = _softmax(graph.output[0].name, interface)
    if before:
        _rename_inputs_(graph, graph.input[0].name, before[-1].output[0])
        _retype_(graph.input[0], interface.input == "uint8", TO_NHWC if interface.layout == "nhwc" else None)
    if softmax:
        graph.output[0].name = softmax[-1].output[0]
    nodes = [*before, *graph.node, *softmax]
    if interface.top_k:
        nodes.append(_top_node(graph.output[0].name))
        constants.append(_add_top_outputs_(graph, interface.top_k))
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    return found


def without_interface(proto: Proto) -> Proto:
    """The network from which ``with_interface`` made ``proto``."""
    found = copy.deepcopy(proto)
    graph = found.graph
    before = [node for node in graph.node if node.name.startswith(BEFORE)]
    after = [node for node in graph.node if node.name.startswith(AFTER)]
    for node in (*before, *after):
        graph.node.remove(node)
    for tensor in [tensor for tensor in graph.initializer if tensor.name.startswith((BEFORE, AFTER))]:
        graph.initializer.remove(tensor)
    if before:
        _rename_inputs_(graph, before[-1].output[0], graph.input[0].name)
        transposed = any(node.op_type == "Transpose" for node in before)
        _retype_(graph.input[0], False, TO_NCHW if transposed else None)
    if after:
        del graph.output[1:]
        graph.output[0].name = after[0].input[0]
    return found


def attach_(path: Path, interface: Interface) -> None:
    """Give the network in ``path`` this ``interface``; weights in external files stay there."""
    if interface.is_plain:
        return
    import onnx

    proto = onnx.load(path, load_external_data=False)
    write_bytes(path, with_interface(proto, interface).SerializeToString())


def write_interface(path: Path, interface: Interface) -> None:
    """Give the network in ``path`` this ``interface``, once ONNX's checker and a check of the preprocessing pass.

    Raises:
        ModelError: the resulting network is not valid.
        NumericsError: pixels are normalised differently from the pipeline, or the top classes are wrong.
    """
    if interface.is_plain:
        return
    import onnx

    found = with_interface(onnx.load(path), interface)
    try:
        onnx.checker.check_model(found, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"With preprocessing, the network is not valid ONNX: {error}") from error
    if interface.input == "uint8":
        _check_normalisation(found, interface, path.name)
    if interface.top_k:
        _check_top(found, path.name)
    write_bytes(path, found.SerializeToString())


@contextmanager
def plain_copy(path: Path) -> Iterator[Path]:
    """A temporary copy of the network in ``path`` that maps normalised NCHW images to logits."""
    import onnx

    with tempfile.TemporaryDirectory(prefix="catro-deploy-") as folder:
        copied = Path(folder, path.name)
        copied.write_bytes(without_interface(onnx.load(path)).SerializeToString())
        yield copied


def _preprocessing(name: str, interface: Interface) -> tuple[list[Any], list[Any]]:
    """Nodes that turn the input ``name`` into normalised NCHW images, and their constants."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def add(operator: str, *more: str, **attributes: Any) -> None:  # noqa: ANN401 - of any operator
        source = nodes[-1].output[0] if nodes else name
        label = f"{BEFORE}{operator}"
        nodes.append(helper.make_node(operator, [source, *more], [label], label, **attributes))

    if interface.input == "uint8":
        add("Cast", to=TensorProto.FLOAT)
    if interface.layout == "nhwc":
        add("Transpose", perm=TO_NCHW)
    if interface.input == "uint8":
        values = {f"{BEFORE}{key}": array for key, array in _folded(interface).items()}
        constants = [numpy_helper.from_array(array, key) for key, array in values.items()]
        add("BatchNormalization", *values, epsilon=0.0)
    return nodes, constants


def _folded(interface: Interface) -> dict[str, NDArray[np.float32]]:
    """Parameters with which BatchNormalization normalises pixels in 0..255."""
    mean, std = (np.array(values, np.float64) for values in (interface.mean, interface.std))
    parameters = {
        "scale": 1 / (LARGEST_PIXEL * std),
        "shift": -mean / std,
        "mean": np.zeros_like(mean),
        "variance": np.ones_like(mean),
    }
    return {name: values.astype(np.float32) for name, values in parameters.items()}


def _softmax(name: str, interface: Interface) -> list[Any]:
    """Nodes that turn the logits ``name`` into the first output."""
    from onnx import helper

    if interface.output == "logits":
        return []
    return [helper.make_node("Softmax", [name], ["probabilities"], f"{AFTER}Softmax", axis=-1)]


def _top_node(name: str) -> Any:  # noqa: ANN401 - onnx.NodeProto
    """The node that finds the largest values of the output ``name``, in descending order."""
    from onnx import helper

    return helper.make_node("TopK", [name, TOP_K], list(TOP), f"{AFTER}TopK", axis=-1, largest=1, sorted=1)


def _add_top_outputs_(graph: Any, top_k: int) -> Any:  # noqa: ANN401 - onnx.GraphProto, onnx.TensorProto
    """Give ``graph`` the two outputs of ``_top_node``; return their size as a constant, at most one per class."""
    from onnx import TensorProto, numpy_helper

    batch, classes = graph.output[0].type.tensor_type.shape.dim
    count = min(top_k, classes.dim_value)
    for name, kind in zip(TOP, (TensorProto.FLOAT, TensorProto.INT64), strict=True):
        value = graph.output.add(name=name)
        value.type.tensor_type.elem_type = kind
        value.type.tensor_type.shape.dim.extend([batch, type(classes)(dim_value=count)])
    return numpy_helper.from_array(np.array([count], np.int64), TOP_K)


def _rename_inputs_(graph: Any, old: str, new: str) -> None:  # noqa: ANN401 - onnx.GraphProto
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]


def _retype_(value: Any, uint8: bool, order: Sequence[int] | None) -> None:  # noqa: ANN401 - onnx.ValueInfoProto
    """Change ``value`` to pixels or floats, and its dimensions to another ``order``."""
    from onnx import TensorProto

    tensor = value.type.tensor_type
    tensor.elem_type = TensorProto.UINT8 if uint8 else TensorProto.FLOAT
    if order is not None:
        sizes = [copy.deepcopy(size) for size in tensor.shape.dim]
        del tensor.shape.dim[:]
        tensor.shape.dim.extend(sizes[place] for place in order)


def _check_normalisation(proto: Proto, interface: Interface, name: str) -> None:
    """Require that every pixel value is normalised as in the pipeline."""
    import onnx
    import onnxruntime
    import torch

    from catro_deploy.data.pixels import normalise

    pixels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16).repeat(len(interface.mean), axis=1)
    nodes = [node for node in proto.graph.node if node.name.startswith(BEFORE)]
    constants = [tensor for tensor in proto.graph.initializer if tensor.name.startswith(BEFORE)]
    image = onnx.helper.make_tensor_value_info(nodes[0].input[0], onnx.TensorProto.UINT8, [None] * pixels.ndim)
    result = onnx.helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, None)
    part = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "preprocessing", [image], [result], constants),
        opset_imports=proto.opset_import,
        ir_version=proto.ir_version,
    )
    session = onnxruntime.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
    given = pixels.transpose(TO_NHWC) if interface.layout == "nhwc" else pixels
    (found,) = session.run(None, {image.name: np.ascontiguousarray(given)})
    expected = normalise(torch.from_numpy(pixels), interface.mean, interface.std).numpy()
    apart = float(np.abs(found - expected).max())
    allowed = AGREEMENT * max(1.0, float(np.abs(expected).max()))
    if not apart <= allowed:  # also if it is NaN
        raise NumericsError(f"{name} normalises pixels with a deviation of {apart:.3g}; {allowed:.3g} is allowed.")


def _check_top(proto: Proto, name: str) -> None:
    """Require that, for an image of noise, the top classes are those with the largest values."""
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    shape = [size if isinstance(size, int) else 1 for size in given.shape]
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    image = pixels if given.type == "tensor(uint8)" else pixels / np.float32(LARGEST_PIXEL)
    values, top_values, top_classes = session.run(None, {given.name: image})
    largest = -np.sort(-values, axis=1)[:, : top_values.shape[1]]
    named = np.take_along_axis(values, top_classes, 1)
    if not (np.array_equal(top_values, largest) and np.array_equal(named, largest)):
        raise NumericsError(f"{name} returns top {top_values.shape[1]} classes other than those of its outputs.")
