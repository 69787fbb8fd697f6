"""Parts of CUDA's runtime library that Polygraphy does not wrap: events, graphs, pinned memory, GPU properties."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.errors import FaultError, RuntimeMissingError
from catro_deploy.runtimes.cuda_files import access_problem, library_path, no_gpu_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike, NDArray

__all__ = [
    "CaptureError", "Event", "Graph", "Pinned", "captured", "cuda_error", "gpu_identity", "shared_memory_bytes",
    "try_gpu",
]  # fmt: skip

OUT_OF_MEMORY, NO_DEVICE, NO_DRIVER = 2, 100, 35
# Values of cudaDeviceAttr.
SM_COUNT, INTEGRATED, MAJOR, MINOR = 16, 18, 75, 76
# The properties begin with the name, and have never been this long.
PROPERTIES_BYTES, NAME_BYTES = 8192, 256
CAPTURE_THREAD_LOCAL = 1
# cudaMemcpyDefault: the direction follows from the addresses.
COPY = 4
TRIAL_FLOATS = 1024
LIBRARY_PATH = "LD_LIBRARY_PATH"


@lru_cache(None)
def _cuda() -> Any:  # noqa: ANN401 - ctypes.CDLL, every function of which is an attribute
    """The library, as Polygraphy finds it: in LD_LIBRARY_PATH, in the wheel that fits TensorRT, or in the system.

    Raises:
        RuntimeMissingError: it or Polygraphy is missing, or this user may not use the GPU.
    """
    if no_gpu_memory() and (closed := access_problem()):
        raise RuntimeMissingError(*closed)
    try:
        from polygraphy.cuda import wrapper

        with _searching(library_path(os.environ.get(LIBRARY_PATH, ""))):
            return wrapper().handle
    except ImportError as error:
        raise RuntimeMissingError(f"Polygraphy cannot be imported ({error}).", "pip install polygraphy") from None
    except OSError as error:
        raise RuntimeMissingError(
            f"CUDA's runtime library cannot be loaded ({error}).",
            "Install CUDA's runtime (on a Jetson: sudo apt-get install nvidia-jetpack; for tensorrt-cu13: python3 -m "
            "pip install nvidia-cuda-runtime; for tensorrt-cu12: nvidia-cuda-runtime-cu12), or name its folder in "
            "LD_LIBRARY_PATH.",
        ) from None


@contextmanager
def _searching(folders: str) -> Iterator[None]:
    """Set LD_LIBRARY_PATH to ``folders`` for the block; processes that are started later get the user's own."""
    before = os.environ.get(LIBRARY_PATH)
    os.environ[LIBRARY_PATH] = folders
    try:
        yield
    finally:
        if before is None:
            del os.environ[LIBRARY_PATH]
        else:
            os.environ[LIBRARY_PATH] = before


def _called(function: str, *arguments: Any) -> None:  # noqa: ANN401 - whatever ctypes takes
    """Call ``function`` of the library.

    Raises:
        FaultError: it failed.
        RuntimeMissingError: there is no GPU, or no driver for it.
    """
    library = _cuda()
    status = int(getattr(library, function)(*arguments))
    if status == 0:
        return
    library.cudaGetErrorString.restype = ctypes.c_char_p
    reason = library.cudaGetErrorString(status).decode(errors="replace")
    raise cuda_error(status, f"{function} failed: {reason} (CUDA error {status}).")


def cuda_error(status: int, otherwise: str) -> FaultError:
    """The error for a status of CUDA; ``otherwise`` is its message if the status is not one of the usual ones."""
    if status == OUT_OF_MEMORY:
        return FaultError(
            "The GPU's memory is too small, or other programs use it.",
            "Stop other programs on the GPU, or use a smaller batch (verify.batch_size, bench.batch).",
        )
    if status and (closed := access_problem()):  # CUDA may report this as any of several errors
        return RuntimeMissingError(*closed)
    if status == NO_DRIVER:
        return _driver_error()
    if status == NO_DEVICE:
        return RuntimeMissingError("CUDA finds no GPU that it can use.", "Does the driver list it? See: nvidia-smi")
    return FaultError(otherwise)


def _driver_error() -> RuntimeMissingError:
    """The error for a driver that is missing, or is for an older CUDA than the runtime library."""
    runtime, driver = _version("cudaRuntimeGetVersion"), _version("cudaDriverGetVersion")
    if not driver:
        return RuntimeMissingError(
            f"CUDA {runtime}'s runtime library finds no NVIDIA driver (CUDA error {NO_DRIVER}).",
            "Install the driver of the GPU; nvidia-smi shows whether it works.",
        )
    return RuntimeMissingError(
        f"The NVIDIA driver is for CUDA {driver}, and the runtime library for {runtime} (CUDA error {NO_DRIVER}).",
        f"Install a newer driver, or TensorRT for CUDA {driver}: python3 -m pip install "
        f"tensorrt-cu{driver.partition('.')[0]}",
    )


def _version(function: str) -> str:
    """``13.2`` of 13020; empty if there is none."""
    version = ctypes.c_int()
    getattr(_cuda(), function)(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""


def try_gpu() -> None:
    """Copy some numbers to the GPU's memory and back on a stream: what every inference needs first.

    Raises:
        RuntimeMissingError: there is no GPU, or this user may not use it.
        FaultError: it does not work.
    """
    stream, there = ctypes.c_void_p(), ctypes.c_void_p()
    size = ctypes.c_size_t(TRIAL_FLOATS * np.dtype(np.float32).itemsize)
    _called("cudaStreamCreate", ctypes.byref(stream))
    _called("cudaMalloc", ctypes.byref(there), size)
    sent, returned = (Pinned((TRIAL_FLOATS,), np.float32) for _ in range(2))
    sent.array[:] = np.arange(TRIAL_FLOATS)
    returned.array[:] = -1
    _called("cudaMemcpyAsync", there, sent.address, size, COPY, stream)
    _called("cudaMemcpyAsync", returned.address, there, size, COPY, stream)
    _called("cudaStreamSynchronize", stream)
    same = bool((sent.array == returned.array).all())
    sent.free()
    returned.free()
    _called("cudaFree", there)
    _called("cudaStreamDestroy", stream)
    if not same:
        raise FaultError("The GPU's memory does not return what was written to it.")


def gpu_identity() -> dict[str, Any]:
    """The GPU's name, compute capability and number of SMs, which determine where an engine runs, and how fast.

    A power mode of a Jetson may switch SMs off.

    Raises:
        RuntimeMissingError: there is no GPU.
    """
    properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
    _called("cudaGetDeviceProperties", properties, 0)
    name = properties.raw[:NAME_BYTES].split(b"\0")[0].decode(errors="replace")
    return {"gpu": name, "compute_capability": f"{_attribute(MAJOR)}.{_attribute(MINOR)}", "sms": _attribute(SM_COUNT)}


def shared_memory_bytes() -> int | None:
    """Total memory of a GPU that shares it with the processor, as on a Jetson; None for a GPU with its own.

    Raises:
        RuntimeMissingError: there is no GPU.
    """
    if not _attribute(INTEGRATED):
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _called("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return total.value


def _attribute(which: int) -> int:
    value = ctypes.c_int()
    _called("cudaDeviceGetAttribute", ctypes.byref(value), which, 0)
    return value.value


class CaptureError(FaultError):
    """Work that cannot be captured as a CUDA graph: it waits for the host, for example."""


class Event:
    """A point on a stream, which the GPU records when it reaches it."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        _called("cudaEventCreate", ctypes.byref(self._handle))

    def record(self, stream: int) -> None:
        """Record when all work put on ``stream`` so far is done."""
        _called("cudaEventRecord", self._handle, ctypes.c_void_p(stream))

    def wait(self) -> None:
        """Wait for that point."""
        _called("cudaEventSynchronize", self._handle)

    def us_until(self, later: Event) -> float:
        """Microseconds from this point to a ``later`` one; both have been reached."""
        milliseconds = ctypes.c_float()
        _called("cudaEventElapsedTime", ctypes.byref(milliseconds), self._handle, later._handle)
        return milliseconds.value * 1e3

    def free(self) -> None:
        """Free it."""
        _called("cudaEventDestroy", self._handle)


class Graph:
    """Captured work, launched in one call."""

    def __init__(self) -> None:
        self._runnable = ctypes.c_void_p()

    def launch(self, stream: int) -> None:
        """Put all of it on ``stream``."""
        _called("cudaGraphLaunch", self._runnable, ctypes.c_void_p(stream))

    def free(self) -> None:
        """Free it."""
        _called("cudaGraphExecDestroy", self._runnable)


@contextmanager
def captured(stream: int) -> Iterator[Graph]:
    """Capture the work put on ``stream`` in the block, instead of running it.

    The graph can be launched after the block.

    Raises:
        CaptureError: something in the block cannot be captured.
    """
    graph, template = Graph(), ctypes.c_void_p()
    _called("cudaStreamBeginCapture", ctypes.c_void_p(stream), CAPTURE_THREAD_LOCAL)
    try:
        try:
            yield graph
        finally:
            _called("cudaStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(template))
        _called("cudaGraphInstantiateWithFlags", ctypes.byref(graph._runnable), template, ctypes.c_ulonglong(0))
    except FaultError as error:
        raise CaptureError(error.problem) from error
    _called("cudaGraphDestroy", template)


class Pinned:
    """An array in pinned memory, which the GPU can copy asynchronously and faster."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        count = int(np.prod(shape))
        self.address = ctypes.c_void_p()
        size = max(1, count * np.dtype(dtype).itemsize)
        _called("cudaMallocHost", ctypes.byref(self.address), ctypes.c_size_t(size))
        memory = memoryview((ctypes.c_byte * size).from_address(self.address.value or 0)).cast("B")
        self.array: NDArray[Any] = np.frombuffer(memory, dtype, count).reshape(shape)

    def free(self) -> None:
        """Free it; the array must not be used afterwards."""
        self.array = np.empty(0)
        _called("cudaFreeHost", self.address)
