"""ONNX Runtime on the CPU. Runs on devices too: Python 3.8, numpy and onnxruntime suffice."""

from __future__ import annotations

import json
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.errors import CatroError, FaultError, ModelError, RuntimeMissingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

__all__ = ["OrtRunner"]

ERRORS_ONLY = 3
# Rounds float biases to multiples of the input's scale times the weights': a product that half precision cannot hold.
ROUNDS_BIASES = "WeightBiasQuantization"
KERNEL_TIME = "_kernel_time"
CORRUPT = ("INVALID_PROTOBUF", "NO_MODEL", "No graph was found", "does not have a graph")


class OrtRunner:
    """A model in ONNX Runtime's CPU provider: ``threads`` for each operator, one operator after the other."""

    name = "onnxruntime"
    # The first is the requested one; a node that it cannot compute falls back to the next.
    wanted: tuple[str, ...] = ("CPUExecutionProvider",)

    def __init__(self, model: Path, threads: int, *, profiling: bool = False) -> None:
        self.model = model
        self.threads = threads
        self.profiling = profiling
        self._session: Any = None
        self._profiles: Any = None
        self._input = ""
        self._shape: list[Any] = []

    def __enter__(self) -> OrtRunner:
        """Load the model and optimise its graph."""
        if not self.model.is_file():
            raise ModelError(f"There is no model file {self.model}.", "Make it: catro-deploy export")
        self._ort = _import_onnxruntime()
        if self.wanted[0] not in self._ort.get_available_providers():
            raise RuntimeMissingError(
                f"ONNX Runtime {self.version} has no {self.wanted[0]} here.", self._install_hint()
            )
        self._prepare()
        try:
            self._load(_session_options(self._ort, self.threads))
        except CatroError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Free the session and its threads."""
        self._session = None
        if self._profiles is not None:
            self._profiles.cleanup()

    def _load(self, options: Any) -> None:  # noqa: ANN401 - onnxruntime.SessionOptions
        if self.profiling:
            self._profiles = tempfile.TemporaryDirectory(prefix="catro-deploy-profile-")
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._profiles.name) / "ort")
        try:
            self._session = self._ort.InferenceSession(
                str(self.model), options, providers=self._providers(), disabled_optimizers=[ROUNDS_BIASES]
            )
        except Exception as error:  # ONNX Runtime's exceptions have no other common class
            raise self._explain_load(error) from None
        if self._session.get_providers()[0] != self.wanted[0]:
            raise self._explain_fallback()
        self._input, self._shape = self._session.get_inputs()[0].name, self._session.get_inputs()[0].shape
        if len(self._shape) < 2 or not all(isinstance(size, int) for size in self._shape[1:]):
            raise ModelError(
                f"{self.model} takes an input of shape {self._shape}, which does not fix the image's size.",
                "Only the batch may be dynamic. Export again: catro-deploy export",
            )

    @property
    def version(self) -> str:
        """ONNX Runtime's version."""
        return str(_import_onnxruntime().__version__)

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers of the session."""
        return tuple(self._session.get_providers())

    @property
    def properties(self) -> Mapping[str, str]:
        """Empty: they are the options of its providers."""
        return {}

    @property
    def batch(self) -> int | None:
        """The first dimension of the input; None if it is dynamic."""
        size = self._shape[0]
        return size if isinstance(size, int) else None

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The other dimensions of the input."""
        return tuple(self._shape[1:])

    @property
    def input_type(self) -> np.dtype[Any]:
        """uint8 or float32."""
        return np.dtype(np.uint8 if self._session.get_inputs()[0].type == "tensor(uint8)" else np.float32)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata_props of the ONNX file."""
        properties: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        return properties

    def infer(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Map images to logits; the images are not copied."""
        try:
            logits: NDArray[np.float32] = self._session.run(None, {self._input: inputs})[0]
        except Exception as error:  # as above
            raise self._explain_run(error, inputs) from None
        return logits

    def visit(self) -> AbstractContextManager[None]:
        """No-op: each inference is timed separately."""
        return nullcontext()

    def node_times(self) -> tuple[list[str], NDArray[np.float64]]:
        """Names of the nodes as they ran, after all fusions, and their microseconds (inferences, nodes) so far.

        Called once, after the last inference of a runner with ``profiling``.

        Raises:
            StorageError: the file of ONNX Runtime's profiler is incomplete.
        """
        path = Path(self._session.end_profiling())
        try:
            events = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise StorageError(
                f"ONNX Runtime could not write the output of its profiler to {path.parent}: {error}.",
                "Free some space there, or name another folder in TMPDIR, then run again.",
            ) from None
        nodes = [e for e in events if e["cat"] == "Node" and e["name"].endswith(KERNEL_TIME)]
        runs = sum(e["cat"] == "Session" and e["name"] == "model_run" for e in events)
        names = [e["name"][: -len(KERNEL_TIME)] for e in nodes[: len(nodes) // max(1, runs)]]
        return names, np.array([e["dur"] for e in nodes], dtype=np.float64).reshape(runs, len(names))

    def _prepare(self) -> None:
        """Preparation before a session is created."""

    def _providers(self) -> list[Any]:
        """Providers as a session takes them: names, or a name with its options."""
        return list(self.wanted)

    def _install_hint(self) -> str:
        return "Install it: python3 -m pip install onnxruntime"

    def _explain_fallback(self) -> RuntimeMissingError:
        return RuntimeMissingError(
            f"ONNX Runtime {self.version} could not start its {self.wanted[0]}.",
            "Install it again: python3 -m pip install --force-reinstall onnxruntime",
        )

    def _explain_load(self, error: Exception) -> CatroError:
        reason = str(error)
        if any(sign in reason for sign in CORRUPT):
            return ModelError(f"{self.model} is not a whole ONNX file.", "Make it again: catro-deploy export")
        return ModelError(
            f"ONNX Runtime {self.version} cannot run {self.model}: {reason}",
            "Export for an older opset (export.opset), or install a newer onnxruntime.",
        )

    def _explain_run(self, error: Exception, inputs: NDArray[Any]) -> CatroError:
        if "INVALID_ARGUMENT" in str(error):
            return ModelError(
                f"{self.model.name} takes {self.input_type} of shape {self._shape}; "
                f"it was given {inputs.dtype} of shape {inputs.shape}.",
                "For more than one image at a time set export.dynamic_batch = true and export again.",
            )
        return FaultError(f"ONNX Runtime {self.version} failed on {self.model}: {error}")


def _import_onnxruntime() -> Any:  # noqa: ANN401 - a module without annotations
    try:
        import onnxruntime
    except ImportError as error:
        raise RuntimeMissingError(
            f"ONNX Runtime cannot be imported ({error}).", "Install it: python3 -m pip install onnxruntime"
        ) from None
    return onnxruntime


def _session_options(ort: Any, threads: int) -> Any:  # noqa: ANN401 - as above
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = ERRORS_ONLY
    if threads > 1:
        # Spinning workers of the idle model would take the cores of the other.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
