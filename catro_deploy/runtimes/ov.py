"""OpenVINO on the CPU, and on Intel's GPUs and NPUs. Runs on devices too: Python, numpy and openvino suffice."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from catro_deploy.errors import CatroError, FaultError, ModelError, RuntimeMissingError
from catro_deploy.runtimes.ov_library import core, has_device, import_openvino, said, short_version, words
from catro_deploy.runtimes.ov_times import NodeCounters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["OvGpuRunner", "OvNpuRunner", "OvRunner"]

PRECISION = "INFERENCE_PRECISION_HINT"
# What determines speed and outputs, as the compiled network reports it.
RECORDED = (
    PRECISION, "PERFORMANCE_HINT", "NUM_STREAMS", "INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE", "EXECUTION_DEVICES",
)  # fmt: skip


class OvRunner:
    """A model, ONNX or IR, compiled for latency: one inference at a time, on ``threads`` of the CPU.

    It computes in the precision of its file. OpenVINO's own choice would be bfloat16 on processors that support it,
    half precision on a GPU, and integers for weights that are stored as such.

    ``cache`` is a folder of compiled networks, for devices on which compilation takes long.
    """

    name = "openvino"
    device = "CPU"
    options: Mapping[str, Any] = {
        "NUM_STREAMS": 1,
        # Pinning each thread to its own core would be fast only while nothing else runs on that core.
        "ENABLE_CPU_PINNING": False,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }

    def __init__(self, model: Path, threads: int, *, profiling: bool = False, cache: Path | None = None) -> None:
        self.model = model
        self.threads = threads
        self.profiling = profiling
        self.cache = cache
        self._network: Any = None
        self._compiled: Any = None
        self._exported: Any = None
        self._request: Any = None
        self._given: NDArray[Any] | None = None
        self._counters = NodeCounters()

    def __enter__(self) -> OvRunner:
        """Read the model and compile it for the device."""
        if not self.model.is_file():
            raise ModelError(f"There is no model file {self.model}.", "Make it: catro-deploy export")
        self._ov = import_openvino()
        if not has_device(self.device):
            raise self._no_device()
        try:
            self._network = core().read_model(str(self.model))
        except Exception as error:  # OpenVINO's exceptions have no class of their own
            raise self._explain_read(said(error)) from None
        self._require_image()
        self._compile()
        if self.profiling and self.device == "CPU":
            self._exported = self._export()
        return self

    def __exit__(self, *_: object) -> None:
        """Free the model."""
        self._network = self._compiled = self._exported = self._request = self._given = None

    @property
    def version(self) -> str:
        """OpenVINO's version."""
        return short_version(import_openvino())

    @property
    def providers(self) -> tuple[str, ...]:
        """The devices that compute."""
        return tuple(self._compiled.get_property("EXECUTION_DEVICES"))

    @property
    def properties(self) -> Mapping[str, str]:
        """How the compiled network computes, as it reports it."""
        known = set(self._compiled.get_property("SUPPORTED_PROPERTIES"))
        return {name: words(self._compiled.get_property(name)) for name in RECORDED if name in known}

    @property
    def batch(self) -> int | None:
        """The first dimension of the input; None if it is dynamic."""
        size = self._network.input().get_partial_shape()[0]
        return None if size.is_dynamic else int(size.get_length())

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The other dimensions of the input."""
        shape = self._network.input().get_partial_shape()
        return tuple([int(shape[place].get_length()) for place in range(1, len(shape))])

    @property
    def input_type(self) -> np.dtype[Any]:
        """uint8 or float32."""
        found: np.dtype[Any] = np.dtype(self._network.input().get_element_type().to_dtype())
        return found

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata_props of the ONNX file, also of one that was converted to IR."""
        if not self._network.has_rt_info(["framework"]):
            return {}
        return {key: str(value.astype(str)) for key, value in self._network.rt_info["framework"].items()}

    def infer(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Map images to logits; contiguous images are not copied."""
        if inputs is not self._given:
            self._give(inputs)
        try:
            self._request.infer(share_outputs=True)
        except Exception as error:  # as above
            raise FaultError(f"OpenVINO {self.version} failed on {self.model}: {said(error)}") from None
        if self.profiling:
            self._counters.read(self._request)
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data.astype(np.float32)
        return logits

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Load the network again: its counters report only averages since it was loaded."""
        if self.profiling:
            self._compile()
            self._counters.restart()
        yield
        if self.profiling:
            self._compiled = self._request = self._given = None

    def node_times(self) -> tuple[list[str], NDArray[np.float64]]:
        """Names of the nodes as they ran, after all fusions, and their microseconds (inferences, nodes) so far.

        In a visit, the first inference has its own times, and all others share common ones: see ``NodeCounters``.
        """
        return self._counters.node_times()

    def _require_image(self) -> None:
        inputs = self._network.inputs
        shape = inputs[0].get_partial_shape() if len(inputs) == 1 else None
        if shape is None or shape.rank.is_dynamic or len(shape) < 2 or any(size.is_dynamic for size in list(shape)[1:]):
            raise ModelError(
                f"{self.model} takes {', '.join(str(one.get_partial_shape()) for one in inputs)}, not one image of a "
                "known size.",
                "Only the batch may be dynamic. Export again: catro-deploy export",
            )

    def _compile(self) -> None:
        precision = self._precision()
        config: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", PRECISION: precision, **self.options}
        if self.device == "CPU":
            config["INFERENCE_NUM_THREADS"] = self.threads
        if self.profiling:
            config["PERF_COUNT"] = True
        if self.cache is not None:
            config["CACHE_DIR"] = str(self.cache)
        try:
            if self._exported is None:
                self._compiled = core().compile_model(self._network, self.device, config)
            else:
                self._compiled = core().import_model(self._exported, self.device, config)
            self._request = self._compiled.create_infer_request()
        except Exception as error:  # as above
            raise self._explain_compile(said(error)) from None
        self._given = None
        chosen = words(self._compiled.get_property(PRECISION))
        if chosen != precision:
            raise FaultError(
                f"OpenVINO {self.version} computes {self.model.name} in {chosen}, though {precision} was requested.",
                "Install another version: python3 -m pip install --upgrade openvino",
            )

    def _export(self) -> Any:  # noqa: ANN401 - openvino.Tensor
        """The compiled network in memory: for a small one, loading takes a quarter of the time of compiling."""
        exported = np.frombuffer(self._compiled.export_model().getbuffer(), np.uint8)
        return self._ov.Tensor(exported, shared_memory=True)

    def _precision(self) -> str:
        """The file's precision: f16 if it has constants in half precision, else f32; integers are in the graph."""
        constants = [op for op in self._network.get_ops() if op.get_type_name() == "Constant"]
        return "f16" if any(op.get_element_type() == self._ov.Type.f16 for op in constants) else "f32"

    def _give(self, inputs: NDArray[Any]) -> None:
        expected = (len(inputs) if self.batch is None else self.batch, *self.image_shape)
        if inputs.shape != expected or inputs.dtype != self.input_type:
            batch = "batch" if self.batch is None else self.batch
            raise ModelError(
                f"{self.model.name} takes {self.input_type} of shape {[batch, *self.image_shape]}; "
                f"it was given {inputs.dtype} of shape {inputs.shape}.",
                "For more than one image at a time set export.dynamic_batch = true and export again.",
            )
        contiguous = np.ascontiguousarray(inputs)
        self._request.set_input_tensor(self._ov.Tensor(contiguous, shared_memory=True))
        self._given = contiguous  # a copy is never ``inputs``, so that its later changes are seen

    def _no_device(self) -> RuntimeMissingError:
        found = ", ".join(core().available_devices) or "none"
        return RuntimeMissingError(
            f"OpenVINO {self.version} finds no {self.device} here, only {found}.",
            "Install the driver of the device: https://docs.openvino.ai, Install OpenVINO, Additional Configurations.",
        )

    def _explain_read(self, reason: str) -> CatroError:
        return ModelError(
            f"OpenVINO {self.version} cannot read {self.model}: {reason}",
            "If the file is incomplete, make it again: catro-deploy export. Else export for an older opset "
            "(export.opset), or install a newer openvino.",
        )

    def _explain_compile(self, reason: str) -> CatroError:
        return ModelError(
            f"OpenVINO {self.version} cannot compile {self.model} for {self.device}: {reason}",
            "Install a newer openvino, or use a target with another runtime.",
        )


class OvGpuRunner(OvRunner):
    """``OvRunner`` on an Intel GPU; its times include the copies to the GPU and back."""

    name = "openvino-gpu"
    device = "GPU"
    options: Mapping[str, Any] = {"NUM_STREAMS": 1}


class OvNpuRunner(OvRunner):
    """``OvRunner`` on an Intel NPU."""

    name = "openvino-npu"
    device = "NPU"
    options: Mapping[str, Any] = {}
