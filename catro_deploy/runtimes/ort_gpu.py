"""ONNX Runtime on an NVIDIA GPU, with its CUDA or TensorRT provider."""

from __future__ import annotations

import contextlib
import importlib
import re
from typing import TYPE_CHECKING, Any

from catro_deploy.errors import RuntimeMissingError
from catro_deploy.runtimes.cuda_files import access_problem, gpu_build_hint
from catro_deploy.runtimes.ort import OrtRunner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["OrtCudaRunner", "OrtTensorrtRunner"]

# The first release built with TensorRT 10, whose networks can be strongly typed.
STRONGLY_TYPED_SINCE = (1, 18)


class OrtCudaRunner(OrtRunner):
    """A model in ONNX Runtime's CUDA provider; its times include the copies to the GPU and back."""

    name = "onnxruntime-cuda"
    wanted: tuple[str, ...] = ("CUDAExecutionProvider", "CPUExecutionProvider")
    _needs, _more = "CUDA, cuDNN and a driver", ""

    def _prepare(self) -> None:
        """Load CUDA and cuDNN from wheels, if they are installed so: the provider itself searches only the system."""
        preload = getattr(self._ort, "preload_dlls", None)  # since 1.21
        if preload is not None:
            preload()

    def _install_hint(self) -> str:
        return gpu_build_hint()

    def _explain_fallback(self) -> RuntimeMissingError:
        if closed := access_problem():
            return RuntimeMissingError(*closed)
        return RuntimeMissingError(
            f"ONNX Runtime {self.version} could not start its {self.wanted[0]}, and would compute on the CPU.",
            f"It needs the versions that it is built with: {self._needs}. With pip: python3 -m pip install "
            f"'onnxruntime-gpu[cuda,cudnn]'{self._more}; on a Jetson they are JetPack's. nvidia-smi shows the driver.",
        )


class OrtTensorrtRunner(OrtCudaRunner):
    """A model in ONNX Runtime's TensorRT provider, likewise; what TensorRT cannot compute falls back to CUDA.

    ``options`` are the provider's; ``batches`` are the minimum, usual and maximum size of a dynamic batch: without them
    the provider builds a new engine whenever a batch is larger or smaller than all before.

    trt_fp16_enable and trt_int8_enable stay off. If neither is set, the provider makes networks strongly typed, so that
    the precision is that of the ONNX file; with one of them TensorRT may compute in half precision what the file keeps
    in float32.
    """

    name = "onnxruntime-tensorrt"
    wanted = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    _needs, _more = "TensorRT 10, CUDA, cuDNN and a driver", " 'tensorrt<11'"

    def __init__(
        self,
        model: Path,
        threads: int,
        *,
        profiling: bool = False,
        options: Mapping[str, str] | None = None,
        batches: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(model, threads, profiling=profiling)
        self._options = dict(options or {})
        self._batches = batches

    def _prepare(self) -> None:
        if _version(self.version) < STRONGLY_TYPED_SINCE:
            raise RuntimeMissingError(
                f"ONNX Runtime {self.version} is built with a TensorRT that cannot take precision from the ONNX file.",
                f"It needs {'.'.join(map(str, STRONGLY_TYPED_SINCE))} or later. {gpu_build_hint()}",
            )
        super()._prepare()
        with contextlib.suppress(ImportError):
            importlib.import_module("tensorrt")  # loads the libraries of its wheel, which the provider needs

    def _providers(self) -> list[Any]:
        first, *rest = self.wanted
        return [(first, {**self._options, **self._profile()}), *rest]

    def _profile(self) -> dict[str, str]:
        """Options for the sizes of a dynamic batch."""
        if self._batches is None:
            return {}
        options = self._ort.SessionOptions()
        options.graph_optimization_level = self._ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = self._ort.InferenceSession(str(self.model), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's errors have no other common class
            raise self._explain_load(error) from None
        given = session.get_inputs()[0]
        if isinstance(given.shape[0], int):
            return {}
        image = "x".join(map(str, given.shape[1:]))
        return {
            f"trt_profile_{which}_shapes": f"{given.name}:{batch}x{image}"
            for which, batch in zip(("min", "opt", "max"), self._batches)  # noqa: B905 - Python 3.10
        }


def _version(text: str) -> tuple[int, ...]:
    """``(1, 18)`` of 1.18.0."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
