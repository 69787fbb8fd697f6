"""OpenVINO itself, on the CPU."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from catro_deploy.errors import ModelError, RuntimeMissingError
from catro_deploy.runtimes import check_metadata, open_runner
from tests.onnx_files import write_conv_chain, write_graph
from tests.runtimes.test_ort import images


def test_it_computes_what_onnx_runtime_computes(tmp_path):
    file = write_conv_chain(tmp_path / "model.onnx", layers=3, channels=32, size=32)
    given = images(1, 3, 32, 32)
    with open_runner("openvino", file, 1) as runner, open_runner("onnxruntime", file, 1) as other:
        np.testing.assert_allclose(runner.infer(given), other.infer(given), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_runner_says_of_itself(tmp_path, threads):
    file = write_conv_chain(tmp_path / "model.onnx", metadata={"network": "pruned", "classes": '["ä"]'})
    with open_runner("openvino", file, threads) as runner:
        assert (runner.name, runner.providers) == ("openvino", ("CPU",))
        assert all(part.isdigit() for part in runner.version.split("."))
        assert (runner.batch, runner.image_shape, runner.input_type) == (1, (3, 8, 8), np.float32)
        assert runner.metadata == {"network": "pruned", "classes": '["ä"]'}
        assert runner.infer(images(1, 3, 8, 8)).shape == (1, 8)
        check_metadata(runner, {"network": "pruned"})
        assert runner.properties == {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "ENABLE_CPU_PINNING": "False",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
            "EXECUTION_DEVICES": "CPU",
        }


def test_float32_is_computed_in_float32(tmp_path):
    """In bfloat16, OpenVINO's default where the processor supports it, a product is wrong from the third digit on."""
    weights = np.random.default_rng(0).standard_normal((256, 16)).astype(np.float32)
    node = helper.make_node("MatMul", ["image", "w"], ["logits"])
    file = write_graph(tmp_path / "m.onnx", [node], [numpy_helper.from_array(weights, "w")], [1, 256], [1, 16])
    given = images(1, 256)
    with open_runner("openvino", file, 1) as runner:
        np.testing.assert_allclose(runner.infer(given), given.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)


def test_each_batch_gets_its_own_answer_though_the_memory_is_shared(tmp_path):
    node = helper.make_node("Relu", ["image"], ["logits"])
    file = write_graph(tmp_path / "relu.onnx", [node], [], ["batch", 4], ["batch", 4])
    with open_runner("openvino", file, 1) as runner:
        assert runner.batch is None
        given = [images(count, 4) * sign for count, sign in ((3, 1), (3, -1), (5, 1))]
        answers = [runner.infer(one) for one in given]
        given[0][:] = 1  # overwritten in place, like a camera's buffer
        again = runner.infer(given[0])
    for one, answer in zip([images(3, 4), *given[1:]], answers, strict=True):
        np.testing.assert_array_equal(answer, np.maximum(one, 0))
    assert (again == 1).all()


def test_changes_of_images_that_had_to_be_copied_are_seen(tmp_path):
    node = helper.make_node("Relu", ["image"], ["logits"])
    file = write_graph(tmp_path / "relu.onnx", [node], [], ["batch", 4], ["batch", 4])
    strided = np.zeros((3, 8), np.float32)[:, ::2]
    with open_runner("openvino", file, 1) as runner:
        assert (runner.infer(strided) == 0).all()
        strided[:] = 1
        assert (runner.infer(strided) == 1).all()


def test_raw_pixels(tmp_path):
    nodes = [helper.make_node("Cast", ["image"], ["logits"], to=1)]
    path = write_graph(tmp_path / "m.onnx", nodes, [], [1, 4], [1, 4])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    onnx.save(model, path)
    with open_runner("openvino", path, 1) as runner:
        assert runner.input_type == np.uint8
        assert runner.infer(np.array([[0, 1, 254, 255]], np.uint8)).tolist() == [[0, 1, 254, 255]]


def test_the_first_output_is_that_of_the_logits(tmp_path):
    nodes = [helper.make_node("Relu", ["image"], ["logits"]), helper.make_node("Neg", ["image"], ["other"])]
    path = write_graph(tmp_path / "m.onnx", nodes, [], [1, 4], [1, 4])
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, [1, 4]))
    onnx.save(model, path)
    with open_runner("openvino", path, 1) as runner:
        assert runner.infer(np.ones((1, 4), np.float32)).tolist() == [[1, 1, 1, 1]]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"no\.onnx") as caught, open_runner("openvino", tmp_path / "no.onnx", 1):
        pass
    assert "catro-deploy export" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"not an onnx file" * 20, None])
def test_a_broken_file_is_named(tmp_path, content):
    file = write_conv_chain(tmp_path / "model.onnx", channels=32)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(ModelError, match=r"model\.onnx") as caught, open_runner("openvino", file, 1):
        pass
    assert "src/" not in caught.value.problem


def test_an_unknown_operator_is_named(tmp_path):
    node = helper.make_node("Fancy", ["image"], ["logits"], domain="nobody.has.this")
    file = write_graph(tmp_path / "model.onnx", [node], [], [1, 4], [1, 4])
    with pytest.raises(ModelError, match="Fancy"), open_runner("openvino", file, 1):
        pass


def test_an_open_image_size_is_refused(tmp_path):
    node = helper.make_node("Relu", ["image"], ["logits"])
    file = write_graph(tmp_path / "model.onnx", [node], [], [1, 3, "height", 8], [1, 3, "height", 8])
    with pytest.raises(ModelError, match=r"model\.onnx"), open_runner("openvino", file, 1):
        pass


@pytest.mark.parametrize("given", [images(2, 3, 8, 8), images(1, 3, 9, 8), images(1, 3, 8, 8).astype(np.float64)])
def test_images_that_do_not_fit_are_explained(tmp_path, given):
    file = write_conv_chain(tmp_path / "model.onnx")
    with open_runner("openvino", file, 1) as runner, pytest.raises(ModelError) as caught:
        runner.infer(given)
    assert f"{given.dtype} of shape {given.shape}" in caught.value.problem
    assert "[1, 3, 8, 8]" in caught.value.problem


@pytest.mark.parametrize(("runtime", "device"), [("openvino-gpu", "GPU"), ("openvino-npu", "NPU")])
def test_a_device_that_is_not_here_is_never_replaced_by_the_cpu(tmp_path, runtime, device):
    from catro_deploy.runtimes.ov_library import core

    if any(found.startswith(device) for found in core().available_devices):
        pytest.skip("this machine has one")
    file = write_conv_chain(tmp_path / "model.onnx")
    with pytest.raises(RuntimeMissingError, match=rf"\b{device}\b.*\bCPU\b"), open_runner(runtime, file, 1):
        pass


def test_nodes_are_those_that_are_left_after_fusion(tmp_path):
    file = write_conv_chain(tmp_path / "model.onnx", layers=8, channels=32, size=32)
    with open_runner("openvino", file, 1, profiling=True) as runner:
        for _ in range(3):
            with runner.visit():
                for _ in range(5):
                    runner.infer(images(1, 3, 32, 32))
        names, times_us = runner.node_times()
    assert 8 <= len(names) <= 12
    assert times_us.shape == (15, len(names))
    assert times_us[1::5].sum(axis=1).min() > 50  # 65 million multiply-accumulates


def test_profiling_changes_no_answer(tmp_path):
    """Nor does loading the compiled network again for each visit."""
    file = write_conv_chain(tmp_path / "model.onnx", layers=2)
    with open_runner("openvino", file, 1) as plain, open_runner("openvino", file, 1, profiling=True) as runner:
        expected = plain.infer(images(1, 3, 8, 8)).copy()
        np.testing.assert_array_equal(runner.infer(images(1, 3, 8, 8)), expected)
        for _ in range(2):
            with runner.visit():
                np.testing.assert_array_equal(runner.infer(images(1, 3, 8, 8)), expected)
                assert runner.properties == plain.properties


def test_without_openvino_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    file = write_conv_chain(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(RuntimeMissingError) as caught, open_runner("openvino", file, 1):
        pass
    assert "pip install openvino" in caught.value.hint


def test_the_registry_does_not_import_it():
    code = "import sys, catro_deploy.runtimes, catro_deploy.runtimes.ov; print('openvino' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
