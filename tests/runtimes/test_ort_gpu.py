"""Options for ONNX Runtime's GPU providers. They are not installed: a session on the CPU records the options."""

import numpy as np
import onnxruntime
import pytest

from catro_deploy.errors import RuntimeMissingError
from catro_deploy.runtimes import cuda_files, open_runner
from catro_deploy.runtimes.cuda_files import gpu_build_hint
from catro_deploy.runtimes.ort_gpu import OrtTensorrtRunner
from tests.onnx_files import write_conv_chain

CUDA, TENSORRT, CPU = "CUDAExecutionProvider", "TensorrtExecutionProvider", "CPUExecutionProvider"
SESSION = onnxruntime.InferenceSession
R36 = "# R36 (release), REVISION: 4.7, GCID: 1, BOARD: generic, EABI: aarch64\n"
R39 = "# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic, EABI: aarch64\n"


@pytest.fixture
def happened(monkeypatch):
    """Calls into ONNX Runtime, in order; for sessions, their providers."""
    calls = []

    class Session(SESSION):
        def __init__(self, path, options, *, providers, **others):
            if providers != [CPU]:
                calls.append(providers)
            super().__init__(path, options, providers=[CPU], **others)
            self.claimed = [one if isinstance(one, str) else one[0] for one in providers]

        def get_providers(self):
            return self.claimed

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: calls.append("preload"))
    return calls


def test_libraries_of_wheels_are_loaded_before_the_session(tmp_path, happened):
    with open_runner("onnxruntime-cuda", write_conv_chain(tmp_path / "m.onnx"), 1):
        assert happened == ["preload", [CUDA, CPU]]


def test_before_1_21_there_is_nothing_to_load_them(tmp_path, happened, monkeypatch):
    monkeypatch.delattr(onnxruntime, "preload_dlls")
    with open_runner("onnxruntime-cuda", write_conv_chain(tmp_path / "m.onnx"), 1):
        assert happened == [[CUDA, CPU]]


def test_the_real_function_can_be_called():
    onnxruntime.preload_dlls()


def test_networks_of_the_tensorrt_provider_are_strongly_typed(tmp_path, happened):
    """The provider makes them so only if neither trt_fp16_enable nor trt_int8_enable is set, whatever else is."""
    options = {"trt_builder_optimization_level": "5"}
    with OrtTensorrtRunner(write_conv_chain(tmp_path / "m.onnx"), 1, options=options, batches=(1, 4, 8)):
        pass
    assert happened == ["preload", [(TENSORRT, {"trt_builder_optimization_level": "5"}), CUDA, CPU]]


def test_a_dynamic_batch_gets_one_profile(tmp_path, happened):
    file = write_conv_chain(tmp_path / "m.onnx", batch="batch")
    with OrtTensorrtRunner(file, 1, batches=(1, 4, 8)) as runner:
        name = runner._input
        assert runner.infer(np.zeros((2, 3, 8, 8), np.float32)).shape == (2, 8)
    (_, shapes), *_ = happened[-1]
    assert shapes == {
        "trt_profile_min_shapes": f"{name}:1x3x8x8",
        "trt_profile_opt_shapes": f"{name}:4x3x8x8",
        "trt_profile_max_shapes": f"{name}:8x3x8x8",
    }


@pytest.mark.parametrize("version", ["1.17.3", "1.9.0"])
def test_a_provider_that_chooses_the_precision_itself_is_refused(tmp_path, happened, monkeypatch, version):
    monkeypatch.setattr(onnxruntime, "__version__", version)
    runner = open_runner("onnxruntime-tensorrt", write_conv_chain(tmp_path / "m.onnx"), 1)
    with pytest.raises(RuntimeMissingError, match=version) as caught, runner:
        pass
    assert caught.value.hint.startswith("It needs 1.18 or later. Install")
    assert happened == []


@pytest.mark.parametrize(
    ("release", "machine", "said"),
    [
        (R36, "aarch64", "(PyPI has none): python3 -m pip install onnxruntime-gpu --index-url https://pypi.jetson-ai-lab.io/jp6/cu126"),
        (R39, "aarch64", "from its folder at https://pypi.jetson-ai-lab.io"),
        (None, "aarch64", "pip install onnxruntime-gpu, or see https://pypi.jetson-ai-lab.io"),
        (None, "x86_64", "Install the build for NVIDIA GPUs: python3 -m pip install onnxruntime-gpu"),
    ],
)  # fmt: skip
def test_where_the_build_for_gpus_is_depends_on_the_machine(tmp_path, monkeypatch, release, machine, said):
    if release:
        (tmp_path / "nv_tegra_release").write_text(release)
    monkeypatch.setattr(cuda_files, "TEGRA_RELEASE", tmp_path / "nv_tegra_release")
    monkeypatch.setattr(cuda_files.platform, "machine", lambda: machine)
    assert gpu_build_hint().endswith(said) or said in gpu_build_hint()


def test_a_build_for_gpus_that_was_overwritten_is_installed_again(tmp_path, monkeypatch):
    package = tmp_path / "onnxruntime_gpu-1.31.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.31.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with (
        pytest.raises(RuntimeMissingError, match="no CUDAExecutionProvider") as caught,
        open_runner("onnxruntime-cuda", write_conv_chain(tmp_path / "m.onnx"), 1),
    ):
        pass
    assert "onnxruntime was installed last" in caught.value.hint
    assert caught.value.hint.endswith("pip install --force-reinstall --no-deps onnxruntime-gpu")


@pytest.mark.parametrize(
    ("runtime", "said"),
    [("onnxruntime-cuda", "'onnxruntime-gpu[cuda,cudnn]';"), ("onnxruntime-tensorrt", "[cuda,cudnn]' 'tensorrt<11';")],
)
def test_a_provider_that_does_not_start_says_what_it_needs(tmp_path, happened, monkeypatch, runtime, said):
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda self: [CPU])
    with (
        pytest.raises(RuntimeMissingError, match=r"ExecutionProvider\b.*\bCPU\b") as caught,
        open_runner(runtime, write_conv_chain(tmp_path / "m.onnx"), 1),
    ):
        pass
    assert said in caught.value.hint


def test_closed_nodes_are_why_a_provider_does_not_start(tmp_path, happened, monkeypatch):
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda self: [CPU])
    monkeypatch.setattr("catro_deploy.runtimes.ort_gpu.access_problem", lambda: ("No access.", "usermod"))
    with (
        pytest.raises(RuntimeMissingError, match="No access"),
        open_runner("onnxruntime-cuda", write_conv_chain(tmp_path / "m.onnx"), 1),
    ):
        pass
