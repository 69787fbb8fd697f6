"""The interface of a runtime: one model, loaded within a ``with`` block, that maps images to logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from catro_deploy.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GpuRunner", "Runner", "check_metadata"]


class Runner(Protocol):
    """One model file in one runtime, loaded within a ``with`` block; only ``name`` is available before."""

    @property
    def name(self) -> str:
        """The runtime's name in the registry."""

    @property
    def version(self) -> str:
        """The runtime's version."""

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers or devices, such as ``CPUExecutionProvider``, the preferred one first."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The runtime's own description of how it computes; empty if there is none."""

    @property
    def batch(self) -> int | None:
        """How many images the model takes at a time; None if any number."""

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width of one image, in the order in which the model takes them."""

    @property
    def input_type(self) -> np.dtype[Any]:
        """Type of the pixels: uint8 if the model takes raw pixels, else float32."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata that the exporter wrote into the model file."""

    def __enter__(self) -> Runner:
        """Load the model.

        Raises:
            RuntimeMissingError: the runtime is not installed or does not start.
            ModelError: the file is missing or corrupt, or the runtime cannot run it.
        """

    def __exit__(self, *_: object) -> None:
        """Free the model."""

    def infer(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Map images, of ``input_type`` and shape (n, *image_shape), to logits or probabilities (n, classes).

        Raises:
            ModelError: the images do not have the shape or the type that the model takes.
            FaultError: the runtime failed.
        """

    def visit(self) -> AbstractContextManager[None]:
        """Begin a series of inferences whose node times belong together; the first one does not count."""

    def node_times(self) -> tuple[list[str], NDArray[np.float64]]:
        """Names of the nodes as they ran, after all fusions, and their microseconds (inferences, nodes) so far.

        Called once, after the last inference of a runner that was opened for profiling.

        Raises:
            StorageError: the runtime's profile could not be written.
        """


@runtime_checkable
class GpuRunner(Runner, Protocol):
    """A runner on a GPU, which has its own clock, and memory that images must be copied to."""

    @property
    def model(self) -> Path:
        """The file of its engine."""

    def shapes(self, batch: int) -> str:
        """The input as ``trtexec`` needs it, such as ``image:8x3x32x32``; empty if the engine takes only one shape."""

    def timer(
        self, inputs: NDArray[Any], *, transfers: bool, graph: bool, enqueue_us: list[float] | None = None
    ) -> Callable[[], float]:
        """A function that runs ``inputs`` once per call, and returns the GPU's time in microseconds.

        With ``transfers``, the time includes copies between the host and the GPU; with ``graph``, all of the work is
        one CUDA graph. The microseconds that the host took to enqueue the work are appended to ``enqueue_us``.

        Raises:
            ModelError: the images do not have the shape that the model takes.
            FaultError: the runtime failed.
        """


def check_metadata(runner: Runner, expected: Mapping[str, Any]) -> None:
    """Check that the model file is the expected one.

    Raises:
        ModelError: a value of ``expected`` is not the one in the file.
    """
    for key, value in expected.items():
        found = runner.metadata.get(key)
        if found != value:
            raise ModelError(
                f"The ONNX file belongs to another network: its {key} is {found!r}, this run's is {value!r}.",
                "Export again: catro-deploy export",
            )
