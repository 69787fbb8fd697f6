"""Doubles of the classes of TensorRT's bindings that need its libraries; they compute with ONNX Runtime on the CPU.

A double has no more attributes than the real class of its name, and its methods take the same arguments as those of the
real class, by number and by name: a misspelt name or an argument too many fails here as it would on a device. An
"engine" is the ONNX file with a note on how it was built. Where TensorRT fails, so does the double: with precision
flags on a strongly typed network, with a dynamic batch on a DLA, with a capture before a first inference, with a uint8
input that a layer other than a Cast reads.

Environment variables change its behaviour: CATRO_DOUBLE_UNSUPPORTED, an operator that the parser refuses;
CATRO_DOUBLE_NO_BUILD, building fails; CATRO_DOUBLE_DLA, the number of DLA cores; CATRO_DOUBLE_DLA_REFUSES, operators
(separated by commas) that fall back to the GPU; CATRO_DOUBLE_NO_CAPTURE, nothing can be captured.
"""

import ctypes
import functools
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tensorrt_bindings as real

from tests.doubles.signatures import accepts

__all__ = [
    "Builder", "EngineInspector", "IBuilderConfig", "ICudaEngine", "IExecutionContext", "INetworkDefinition",
    "IOptimizationProfile", "ITimingCache", "OnnxParser", "ParserError", "Runtime",
]  # fmt: skip

MAGIC = b"double of an engine\n"
PRECISIONS = ("FP16", "BF16", "INT8", "FP8", "INT4", "OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS")
"""Builder flags of weakly typed networks; a version need not have all of them."""
BYTES_PER_IMAGE = 1000
"""Memory of the activations."""
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
TYPES = {
    onnx.TensorProto.FLOAT: real.DataType.FLOAT,
    onnx.TensorProto.FLOAT16: real.DataType.HALF,
    onnx.TensorProto.UINT8: real.DataType.UINT8,
    onnx.TensorProto.INT64: real.DataType.INT64,
}


def double(cls: type) -> type:
    """``cls``, restricted to the attributes and signatures of the real class of its name."""
    original = getattr(real, cls.__name__)
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        assert hasattr(original, name), f"TensorRT {real.__version__} has no {cls.__name__}.{name}"
        if callable(member):
            setattr(cls, name, _checked(member, getattr(original, name), f"{cls.__name__}.{name}"))

    def guard(self: object, name: str, value: object) -> None:
        if not name.startswith("_") and not hasattr(original, name):
            raise AttributeError(f"TensorRT {real.__version__} has no {cls.__name__}.{name}")
        object.__setattr__(self, name, value)

    cls.__setattr__ = guard
    return cls


def _checked(member: Callable[..., Any], genuine: object, name: str) -> Callable[..., Any]:
    @functools.wraps(member)
    def call(self: object, *arguments: object, **named: object) -> object:
        if not accepts(genuine, self, *arguments, **named):
            raise TypeError(f"{name} does not take {arguments} {named}: {genuine.__doc__}")
        return member(self, *arguments, **named)

    return call


class HostMemory(bytes):
    """Bytes that are returned as a buffer."""

    @property
    def nbytes(self) -> int:
        return len(self)


@double
class Builder:
    def __init__(self, logger: real.ILogger) -> None:
        assert isinstance(logger, real.ILogger)

    @property
    def num_DLA_cores(self) -> int:  # noqa: N802
        return int(os.environ.get("CATRO_DOUBLE_DLA", "0"))

    def create_network(self, flags: int = 0) -> "INetworkDefinition":
        return INetworkDefinition(flags)

    def create_builder_config(self) -> "IBuilderConfig":
        return IBuilderConfig()

    def create_optimization_profile(self) -> "IOptimizationProfile":
        return IOptimizationProfile()

    def build_serialized_network(self, network: "INetworkDefinition", config: "IBuilderConfig") -> HostMemory | None:
        assert network._flags & (1 << int(real.NetworkDefinitionCreationFlag.STRONGLY_TYPED)), "weakly typed"
        on_dla = config.default_device_type == real.DeviceType.DLA
        dynamic = any(size < 0 for tensor in network._inputs for size in tensor.shape)
        if os.environ.get("CATRO_DOUBLE_NO_BUILD") or config._flags & set(PRECISIONS) or (on_dla and dynamic):
            return None
        note = {
            "version": real.__version__,
            "profiles": [profile._shapes for profile in config._profiles],
            "dla": config.DLA_core if on_dla else None,
            "workspace": config._pools.get("WORKSPACE"),
            "level": config.builder_optimization_level,
            "detailed": config.profiling_verbosity == real.ProfilingVerbosity.DETAILED,
        }
        config._cache._content += network._onnx[:16]  # kernels were timed
        return HostMemory(MAGIC + json.dumps(note).encode() + b"\n" + network._onnx)


class _Tensor:
    is_shape_tensor = False

    def __init__(self, value: onnx.ValueInfoProto) -> None:
        kind = value.type.tensor_type
        self.name = value.name
        self.shape = real.Dims([size.dim_value or -1 for size in kind.shape.dim])
        self.dtype = TYPES[kind.elem_type]


@double
class INetworkDefinition:
    def __init__(self, flags: int) -> None:
        self._flags, self._onnx, self._inputs = flags, b"", []

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    def get_input(self, index: int) -> _Tensor:
        return self._inputs[index]

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int) -> object:
        raise IndexError(index)


@double
class ParserError:
    def __init__(self, place: int, node: onnx.NodeProto) -> None:
        self._place, self._node = place, node

    def node(self) -> int:
        return self._place

    def node_name(self) -> str:
        return self._node.name

    def node_operator(self) -> str:
        return self._node.op_type

    def desc(self) -> str:
        return "In node importer: No importer registered for op"


@double
class OnnxParser:
    def __init__(self, network: INetworkDefinition, logger: real.ILogger) -> None:
        assert isinstance(logger, real.ILogger)
        self._network, self._errors = network, []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def parse_from_file(self, model: str) -> bool:
        proto = onnx.load(model)
        refused = os.environ.get("CATRO_DOUBLE_UNSUPPORTED")
        raw = {v.name for v in proto.graph.input if v.type.tensor_type.elem_type == onnx.TensorProto.UINT8}
        self._errors = [
            ParserError(i, node)
            for i, node in enumerate(proto.graph.node)
            if node.op_type == refused or (node.op_type != "Cast" and raw.intersection(node.input))
        ]
        self._network._onnx = proto.SerializeToString()
        self._network._inputs = [_Tensor(value) for value in proto.graph.input]
        return not self._errors


@double
class ITimingCache:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def serialize(self) -> HostMemory:
        return HostMemory(self._content)


@double
class IOptimizationProfile:
    def __init__(self) -> None:
        self._shapes: dict[str, list[list[int]]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self._shapes[input] = [list(min), list(opt), list(max)]

    def __bool__(self) -> bool:
        return bool(self._shapes)


@double
class IBuilderConfig:
    def __init__(self) -> None:
        self._profiles: list[IOptimizationProfile] = []
        self._cache = ITimingCache(b"")
        self._flags: set[str] = set()
        self._pools: dict[str, int] = {}
        self.builder_optimization_level = 3
        self.profiling_verbosity = real.ProfilingVerbosity.LAYER_NAMES_ONLY
        self.default_device_type = real.DeviceType.GPU
        self.DLA_core = -1

    def set_flag(self, flag: real.BuilderFlag) -> None:
        assert isinstance(flag, real.BuilderFlag)
        self._flags.add(flag.name)

    def clear_flag(self, flag: real.BuilderFlag) -> None:
        assert isinstance(flag, real.BuilderFlag)
        self._flags.discard(flag.name)

    def set_memory_pool_limit(self, pool: real.MemoryPoolType, pool_size: int) -> None:
        assert isinstance(pool, real.MemoryPoolType)
        self._pools[pool.name] = pool_size

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        return ITimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache:
        return self._cache

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1


@double
class Runtime:
    def __init__(self, logger: real.ILogger) -> None:
        assert isinstance(logger, real.ILogger)
        self.engine_host_code_allowed = False
        self.DLA_core = 0

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> "ICudaEngine | None":
        if not serialized_engine.startswith(MAGIC):
            return None
        note, _, content = serialized_engine[len(MAGIC) :].partition(b"\n")
        found = json.loads(note)
        if found["version"] != real.__version__ or found["dla"] not in (None, self.DLA_core):
            return None
        return ICudaEngine(found, content)


@double
class ICudaEngine:
    def __init__(self, note: dict[str, Any], content: bytes) -> None:
        self._note, self._content = note, content
        self._graph = onnx.load_model_from_string(content).graph
        self._tensors = [_Tensor(value) for value in (*self._graph.input, *self._graph.output)]

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    def _named(self, name: str) -> _Tensor:
        return next(tensor for tensor in self._tensors if tensor.name == name)

    def get_tensor_name(self, index: int) -> str:
        return self._tensors[index].name

    def get_tensor_mode(self, name: str) -> real.TensorIOMode:
        given = name in [value.name for value in self._graph.input]
        return real.TensorIOMode.INPUT if given else real.TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> real.Dims:
        return self._named(name).shape

    def get_tensor_dtype(self, name: str) -> real.DataType:
        return self._named(name).dtype

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._note["profiles"])

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[real.Dims]:
        return [real.Dims(shape) for shape in self._note["profiles"][profile_index][name]]

    def create_execution_context(
        self, strategy: real.ExecutionContextAllocationStrategy = real.ExecutionContextAllocationStrategy.STATIC
    ) -> "IExecutionContext | None":
        context = IExecutionContext(self)
        first = strategy == real.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE
        profiles = self._note["profiles"]
        return context if context._allocate(profiles[:1] if first else profiles) else None

    def create_engine_inspector(self) -> "EngineInspector":
        return EngineInspector(self)


@double
class EngineInspector:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine

    def get_engine_information(self, format: real.LayerInformationFormat) -> str:
        assert format == real.LayerInformationFormat.JSON
        fallen = os.environ.get("CATRO_DOUBLE_DLA_REFUSES", "").split(",")
        on_dla = self._engine._note["dla"] is not None
        layers: list[dict[str, str]] = []
        for node in self._engine._graph.node:
            if not on_dla or node.op_type in fallen:
                layers.append({"Name": node.name, "LayerType": node.op_type})
            elif not layers or layers[-1]["LayerType"] != "DLA":  # what follows becomes part of it
                layers.append({"Name": f"{{ForeignNode[{node.name}...]}}", "LayerType": "DLA"})
        ends = "Bindings" if int(real.__version__.split(".")[0]) < 11 else "I/O Tensors"
        return json.dumps({"Layers": layers, ends: [tensor.name for tensor in self._engine._tensors]})


@double
class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._engine = engine
        self._session = onnxruntime.InferenceSession(engine._content, options, providers=["CPUExecutionProvider"])
        self._addresses: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._cudart = ctypes.CDLL("libcudart.so")
        self._profile, self._memory, self._ran = 0, ctypes.c_void_p(), False
        self._call = CALL(lambda _: self._compute())
        self.profiler: Any = None

    def __del__(self) -> None:
        self._cudart.cudaFree(self._memory)

    def _allocate(self, profiles: list[dict[str, list[list[int]]]]) -> bool:
        """Take the memory that activations need in the largest of ``profiles``."""
        self._cudart.cudaFree(self._memory)
        self._memory = ctypes.c_void_p()
        images = max(most[0] for profile in profiles for _, _, most in profile.values())
        size = ctypes.c_size_t(images * BYTES_PER_IMAGE)
        return self._cudart.cudaMalloc(ctypes.byref(self._memory), size) == 0

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        if not stream_handle or not 0 <= profile_index < self._engine.num_optimization_profiles:
            return False
        if profile_index != self._profile:
            self._profile, self._shapes, self._ran = profile_index, {}, False
            return self._allocate([self._engine._note["profiles"][profile_index]])
        return True

    def set_input_shape(self, name: str, shape: Any) -> bool:
        least, _, most = self._engine._note["profiles"][self._profile][name]
        fits = all(low <= size <= high for low, size, high in zip(least, shape, most, strict=True))
        if fits:
            self._ran = self._ran and self._shapes.get(name) == tuple(shape)
            self._shapes[name] = tuple(shape)
        return fits

    def infer_shapes(self) -> list[str]:
        return [value.name for value in self._engine._graph.input if value.name not in self._shapes]

    def get_tensor_shape(self, name: str) -> real.Dims:
        (batch, *_) = next(iter(self._shapes.values()))
        return real.Dims([batch if size < 0 else size for size in self._engine._named(name).shape])

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        if not stream_handle or len(self._addresses) < self._engine.num_io_tensors or self.infer_shapes():
            return False
        if self._cudart.doubleCaptures() and (not self._ran or os.environ.get("CATRO_DOUBLE_NO_CAPTURE")):
            return False  # what TensorRT does in a first inference cannot be captured
        self._ran = True
        return self._cudart.doubleEnqueue(self._call, None) == 0

    def _compute(self) -> None:
        began = time.perf_counter()
        inputs = {name: self._array(name) for name in self._shapes}
        for value, found in zip(self._engine._graph.output, self._session.run(None, inputs), strict=True):
            np.copyto(self._array(value.name), found)
        if self.profiler is not None:
            nodes = self._engine._graph.node
            for node in nodes:
                self.profiler.report_layer_time(node.name, (time.perf_counter() - began) * 1e3 / len(nodes))

    def _array(self, name: str) -> np.ndarray:
        kind = np.dtype(real.nptype(self._engine.get_tensor_dtype(name)))
        shape = tuple(self.get_tensor_shape(name))
        memory = (ctypes.c_byte * (int(np.prod(shape)) * kind.itemsize)).from_address(self._addresses[name])
        return np.frombuffer(memory, kind).reshape(shape)
