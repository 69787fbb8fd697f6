"""TensorRT. Runs on devices: Python, numpy, TensorRT's bindings, CUDA's runtime, and Polygraphy (sent along)."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.errors import FaultError, ModelError
from catro_deploy.runtimes.cuda import Event, Graph, Pinned, captured
from catro_deploy.runtimes.trt_engine import import_tensorrt, loaded, polygraphed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["TrtRunner"]


class TrtRunner:
    """An engine with one input on the first GPU; of several outputs ``infer`` returns the first."""

    name = "tensorrt"
    providers = ("TensorRT",)

    def __init__(self, model: Path, threads: int, *, profiling: bool = False) -> None:
        self.model = model
        self.profiling = profiling
        self._buffers: _Buffers | None = None
        self._profiler: Any = None

    def __enter__(self) -> TrtRunner:
        """Load the engine.

        Raises:
            ModelError: it was built elsewhere.
        """
        self._trt = import_tensorrt()
        self._engine, self._sidecar = loaded(self.model)
        # By default a context allocates the memory of the largest profile; this one only that of the profile in use.
        strategy = self._trt.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE
        self._context = self._engine.create_execution_context(strategy)
        if self._context is None:
            raise self._no_memory()
        modes = {name: self._engine.get_tensor_mode(name) for name in self._names()}
        (self._input,) = (name for name, mode in modes.items() if mode == self._trt.TensorIOMode.INPUT)
        self._outputs = [name for name in modes if name != self._input]
        self._shape = tuple(self._engine.get_tensor_shape(self._input))
        places = range(self._engine.num_optimization_profiles if self._shape[0] < 0 else 0)
        self._profiles = {self._engine.get_tensor_profile_shape(self._input, place)[2][0]: place for place in places}
        if self.profiling:
            self._profiler = _profiler(self._trt)
            self._context.profiler = self._profiler
        from polygraphy.cuda import Stream

        # On the default stream, TensorRT waits for more than it must. Made last: __exit__ frees nothing if this fails.
        self._stream = Stream()
        return self

    def __exit__(self, *_: object) -> None:
        """Free the engine and its memory."""
        if self._buffers is not None:
            self._buffers.free()
        self._context = self._engine = None
        self._stream.free()

    def _names(self) -> list[str]:
        return [self._engine.get_tensor_name(place) for place in range(self._engine.num_io_tensors)]

    @property
    def version(self) -> str:
        """TensorRT's version."""
        return str(import_tensorrt().__version__)

    @property
    def properties(self) -> Mapping[str, str]:
        """Empty: they are in the engine."""
        return {}

    @property
    def batch(self) -> int | None:
        """The first dimension of the input; None if it is dynamic, and ``infer`` takes any number of images."""
        return None if self._shape[0] < 0 else self._shape[0]

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The other dimensions of the input."""
        return self._shape[1:]

    @property
    def input_type(self) -> np.dtype[Any]:
        """uint8 or float32."""
        found: np.dtype[Any] = np.dtype(self._trt.nptype(self._engine.get_tensor_dtype(self._input)))
        return found

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of the ONNX file that the engine was built from."""
        metadata: dict[str, str] = self._sidecar["metadata"]
        return metadata

    def infer(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Map images to logits, both in the host's memory, in batch sizes that the engine was built for."""
        count = len(inputs)
        size = self._batch_for(count)
        with polygraphed(f"Running {self.model.name}"):
            parts = [self._infer(inputs[start : start + size], size) for start in range(0, count, size)]
        return np.concatenate(parts)

    def _batch_for(self, count: int) -> int:
        """The smallest batch of a profile that holds ``count`` images, else the largest of all."""
        enough = [batch for batch in self._profiles if batch >= count]
        return min(enough) if enough else max(self._profiles, default=count)

    def _infer(self, inputs: NDArray[Any], size: int) -> NDArray[np.float32]:
        buffers = self._sized((size, *inputs.shape[1:]))
        buffers.images.array[: len(inputs)] = inputs
        buffers.images.array[len(inputs) :] = 0
        self._enqueue(buffers, transfers=True)
        self._stream.synchronize()
        logits: NDArray[np.float32] = buffers.outputs[0].array[: len(inputs)].astype(np.float32)
        return logits

    def timer(
        self, inputs: NDArray[Any], *, transfers: bool, graph: bool, enqueue_us: list[float] | None = None
    ) -> Callable[[], float]:
        """A function that runs ``inputs`` once per call, and returns the GPU's time in microseconds.

        With ``transfers``, the time includes copies between the host and the GPU; with ``graph``, all of the work is
        one CUDA graph. The microseconds that the host took to enqueue the work are appended to ``enqueue_us``.
        """
        clock, handed_over = time.perf_counter_ns, [] if enqueue_us is None else enqueue_us
        with polygraphed(f"Running {self.model.name}"):
            buffers, stream = self._sized(inputs.shape), self._stream.ptr
        self.infer(inputs)  # once before a capture: TensorRT then prepares what cannot be captured
        begin, end = buffers.event(), buffers.event()
        launch: Callable[[], None] = lambda: self._enqueue(buffers, transfers=transfers)  # noqa: E731
        if graph:
            with captured(stream) as work:
                launch()
            buffers.graphs.append(work)
            launch = lambda: work.launch(stream)  # noqa: E731

        def once() -> float:
            begin.record(stream)
            start = clock()
            launch()
            handed_over.append((clock() - start) / 1000)
            end.record(stream)
            end.wait()
            return begin.us_until(end)

        return once

    def shapes(self, batch: int) -> str:
        """The input as ``trtexec`` needs it, such as ``image:8x3x32x32``; empty if the engine takes only one shape."""
        return "" if self.batch else f"{self._input}:{'x'.join(map(str, (batch, *self.image_shape)))}"

    def visit(self) -> AbstractContextManager[None]:
        """No-op: each inference is timed separately."""
        return nullcontext()

    def node_times(self) -> tuple[list[str], NDArray[np.float64]]:
        """Names of the layers as they ran, after all fusions, and their microseconds (inferences, layers) so far."""
        reported: list[tuple[str, float]] = self._profiler.reported
        first = reported[0][0] if reported else ""
        runs = max(1, sum(name == first for name, _ in reported))
        count = len(reported) // runs
        names = [name for name, _ in reported[:count]]
        return names, np.array([us for _, us in reported[: runs * count]]).reshape(runs, count)

    def _sized(self, shape: tuple[int, ...]) -> _Buffers:
        """Buffers for images of ``shape``, which the context then uses."""
        if self._buffers is None or self._buffers.shape != shape:
            if self._buffers is not None:
                self._buffers.free()
                self._buffers = None
            self._select_profile(shape)
            if not self._context.set_input_shape(self._input, shape) or self._context.infer_shapes():
                raise self._misfit(shape)
            outputs = [(tuple(self._context.get_tensor_shape(name)), self._type(name)) for name in self._outputs]
            self._buffers = _Buffers(shape, self._type(self._input), outputs)
            self._context.set_tensor_address(self._input, self._buffers.images_there.ptr)
            for name, there in zip(self._outputs, self._buffers.outputs_there):  # noqa: B905 - Python 3.10
                self._context.set_tensor_address(name, there.ptr)
        return self._buffers

    def _type(self, name: str) -> Any:  # noqa: ANN401 - one of numpy's types
        return self._trt.nptype(self._engine.get_tensor_dtype(name))

    def _select_profile(self, shape: tuple[int, ...]) -> None:
        """Use the profile that was built for images of ``shape``, and its memory."""
        if not self._profiles:
            return
        if shape[0] not in self._profiles:
            raise self._misfit(shape)
        if not self._context.set_optimization_profile_async(self._profiles[shape[0]], self._stream.ptr):
            raise self._no_memory()
        self._stream.synchronize()

    def _misfit(self, shape: tuple[int, ...]) -> ModelError:
        return ModelError(
            f"The engine {self.model.name} does not take images of shape {shape}.",
            "It takes the batch sizes in bench.batch and bench.batches. For more than one image at a time set "
            "export.dynamic_batch = true, then export and build again.",
        )

    def _no_memory(self) -> FaultError:
        return FaultError(
            f"TensorRT cannot run {self.model.name}: probably the GPU's memory is too small.",
            "Stop other programs on the GPU, or use a smaller batch (bench.batch, bench.batches).",
        )

    def _enqueue(self, buffers: _Buffers, *, transfers: bool) -> None:
        if transfers:
            buffers.images_there.copy_from(buffers.images.array, self._stream)
        if not self._context.execute_async_v3(self._stream.ptr):
            raise FaultError(f"TensorRT could not run {self.model.name}.")
        if transfers:
            for there, here in zip(buffers.outputs_there, buffers.outputs):  # noqa: B905 - Python 3.10
                there.copy_to(here.array, self._stream)


class _Buffers:
    """Buffers for images of one shape and for outputs, on host and GPU, with their events and CUDA graphs."""

    def __init__(self, shape: tuple[int, ...], image_type: Any, outputs: list[tuple[tuple[int, ...], Any]]) -> None:  # noqa: ANN401 - numpy's types
        from polygraphy.cuda import DeviceArray
        from polygraphy.datatype import DataType

        self.shape = shape
        self.events: list[Event] = []
        self.graphs: list[Graph] = []
        self.images = Pinned(shape, image_type)
        self.outputs = [Pinned(shape, kind) for shape, kind in outputs]
        self.images_there = DeviceArray(shape, DataType.from_dtype(np.dtype(image_type)))
        self.outputs_there = [DeviceArray(shape, DataType.from_dtype(np.dtype(kind))) for shape, kind in outputs]

    def event(self) -> Event:
        """A new event, freed with the buffers."""
        self.events.append(Event())
        return self.events[-1]

    def free(self) -> None:
        """Free everything."""
        arrays = (self.images, *self.outputs, self.images_there, *self.outputs_there)
        for one in (*self.events, *self.graphs, *arrays):
            one.free()


def _profiler(trt: Any) -> Any:  # noqa: ANN401 - a module; a class of it
    class Profiler(trt.IProfiler):  # type: ignore[misc]
        """Records TensorRT's report after each inference: layers in order."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.reported: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.reported.append((layer_name, ms * 1e3))

    return Profiler()
