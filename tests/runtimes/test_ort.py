import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from catro_deploy.errors import ModelError, RuntimeMissingError, StorageError, UsageError
from catro_deploy.runtimes import check_metadata, open_runner
from tests.onnx_files import write_conv_chain, write_graph


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_relu_computes_relu(tmp_path):
    file = write_graph(
        tmp_path / "relu.onnx", [helper.make_node("Relu", ["image"], ["logits"])], [], ["batch", 4], ["batch", 4]
    )
    given = images(3, 4)
    with open_runner("onnxruntime", file, threads=1) as runner:
        np.testing.assert_array_equal(runner.infer(given), np.maximum(given, 0))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_runner_says_of_itself(tmp_path, threads):
    file = write_conv_chain(tmp_path / "model.onnx", metadata={"network": "pruned"})
    with open_runner("onnxruntime", file, threads) as runner:
        assert (runner.name, runner.providers) == ("onnxruntime", ("CPUExecutionProvider",))
        assert runner.version.split(".")[0].isdigit()
        assert (runner.batch, runner.image_shape) == (1, (3, 8, 8))
        assert runner.metadata == {"network": "pruned"}
        assert runner.infer(images(1, 3, 8, 8)).shape == (1, 8)


def test_one_thread_and_two_give_the_same_logits(tmp_path):
    file = write_conv_chain(tmp_path / "model.onnx", layers=3, channels=32, size=32)
    logits = []
    for threads in (1, 2):
        with open_runner("onnxruntime", file, threads) as runner:
            logits.append(runner.infer(images(1, 3, 32, 32)))
    np.testing.assert_allclose(*logits, atol=1e-5)


def test_a_dynamic_batch_takes_any_number(tmp_path):
    file = write_conv_chain(tmp_path / "model.onnx", batch="batch")
    with open_runner("onnxruntime", file, threads=1) as runner:
        assert runner.batch is None
        assert runner.infer(images(5, 3, 8, 8)).shape == (5, 8)


def test_a_missing_file_is_named(tmp_path):
    with (
        pytest.raises(ModelError, match=r"no\.onnx") as caught,
        open_runner("onnxruntime", tmp_path / "no.onnx", 1),
    ):
        pass
    assert "catro-deploy export" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"not an onnx file" * 20, None])
def test_a_broken_file_is_named(tmp_path, content):
    file = write_conv_chain(tmp_path / "model.onnx", channels=32)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(ModelError, match=r"model\.onnx"), open_runner("onnxruntime", file, 1):
        pass


def test_an_unknown_operator_is_named(tmp_path):
    node = helper.make_node("Fancy", ["image"], ["logits"], domain="nobody.has.this")
    file = write_graph(tmp_path / "model.onnx", [node], [], [1, 4], [1, 4])
    with pytest.raises(ModelError, match="Fancy"), open_runner("onnxruntime", file, 1):
        pass


def test_an_open_image_size_is_refused(tmp_path):
    node = helper.make_node("Relu", ["image"], ["logits"])
    file = write_graph(tmp_path / "model.onnx", [node], [], [1, 3, "height", 8], [1, 3, "height", 8])
    with pytest.raises(ModelError, match=r"model\.onnx"), open_runner("onnxruntime", file, 1):
        pass


@pytest.mark.parametrize("given", [images(2, 3, 8, 8), images(1, 3, 9, 8), images(1, 3, 8, 8).astype(np.float64)])
def test_images_that_do_not_fit_are_explained(tmp_path, given):
    file = write_conv_chain(tmp_path / "model.onnx")
    with open_runner("onnxruntime", file, 1) as runner, pytest.raises(ModelError) as caught:
        runner.infer(given)
    assert f"{given.dtype} of shape {given.shape}" in caught.value.problem
    assert "[1, 3, 8, 8]" in caught.value.problem


def chain_of_two(folder):
    nodes = [
        helper.make_node("Relu", ["image"], ["positive"], name="first"),
        helper.make_node("Softmax", ["positive"], ["logits"], name="second"),
    ]
    return write_graph(folder / "two.onnx", nodes, [], [1, 4], [1, 4])


def test_nodes_are_timed_by_name_for_each_inference(tmp_path):
    with open_runner("onnxruntime", chain_of_two(tmp_path), 1, profiling=True) as runner:
        for _ in range(5):
            runner.infer(images(1, 4))
        names, times_us = runner.node_times()
    assert names == ["first", "second"]
    assert times_us.shape == (5, 2)
    assert (times_us >= 0).all()


def test_nodes_are_those_that_are_left_after_fusion(tmp_path):
    """Eight convolutions without activations in between, a mean and a reshape; and changes of layout."""
    file = write_conv_chain(tmp_path / "model.onnx", layers=8, channels=32, size=32)
    with open_runner("onnxruntime", file, 1, profiling=True) as runner:
        for _ in range(3):
            runner.infer(images(1, 3, 32, 32))
        names, times_us = runner.node_times()
    assert len(names) >= 8
    assert times_us.shape == (3, len(names))
    assert times_us.sum(axis=1).min() > 50  # 65 million multiply-accumulates


def test_a_runner_that_was_never_asked_has_no_times(tmp_path):
    with open_runner("onnxruntime", chain_of_two(tmp_path), 1, profiling=True) as runner:
        names, times_us = runner.node_times()
    assert (names, times_us.shape) == ([], (0, 0))


def test_profiling_changes_no_answer_and_leaves_no_file(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    file = write_conv_chain(tmp_path / "model.onnx", layers=2)
    with open_runner("onnxruntime", file, 1) as plain, open_runner("onnxruntime", file, 1, profiling=True) as runner:
        np.testing.assert_array_equal(runner.infer(images(1, 3, 8, 8)), plain.infer(images(1, 3, 8, 8)))
        assert list(temporary.iterdir())
    (tmp_path / "broken.onnx").write_bytes(file.read_bytes()[:100])
    with pytest.raises(ModelError), open_runner("onnxruntime", tmp_path / "broken.onnx", 1, profiling=True):
        pass
    assert list(temporary.iterdir()) == []


def test_a_profilers_file_that_is_cut_off_is_explained(tmp_path):
    with open_runner("onnxruntime", chain_of_two(tmp_path), 1, profiling=True) as runner:
        runner.infer(images(1, 4))

        class Session:
            """ONNX Runtime's session, on a full disk."""

            def end_profiling(self, session=runner._session) -> str:
                path = Path(session.end_profiling())
                path.write_bytes(path.read_bytes()[:-20])
                return str(path)

        runner._session = Session()
        with pytest.raises(StorageError, match="profiler") as caught:
            runner.node_times()
    assert "TMPDIR" in caught.value.hint


def test_an_unknown_runtime_is_refused(tmp_path):
    with pytest.raises(UsageError, match="'tflite'"):
        open_runner("tflite", tmp_path / "model.onnx", 1)


def test_without_onnxruntime_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    file = write_conv_chain(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RuntimeMissingError) as caught, open_runner("onnxruntime", file, 1):
        pass
    assert "pip install onnxruntime" in caught.value.hint


def test_metadata_of_another_network_is_refused(tmp_path):
    file = write_conv_chain(tmp_path / "model.onnx", metadata={"network": "pruned", "plan_sha256": "old"})
    with open_runner("onnxruntime", file, 1) as runner:
        check_metadata(runner, {"network": "pruned", "plan_sha256": "old"})
        for key, value in (("plan_sha256", "new"), ("network", "original"), ("never written", "x")):
            with pytest.raises(ModelError, match=f"{key} .*'{value}'"):
                check_metadata(runner, {key: value})


def test_the_registry_imports_no_runtime():
    code = (
        "import sys, catro_deploy.runtimes; print([m for m in ('onnxruntime', 'torch', 'numpy') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("runtime", ["onnxruntime-cuda", "onnxruntime-tensorrt"])
def test_a_provider_that_is_not_here_is_never_replaced_by_the_cpu(tmp_path, runtime):
    path = write_conv_chain(tmp_path / "m.onnx")
    runner = open_runner(runtime, path, 1)
    if runner.wanted[0] in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has it")
    assert runner.name == runtime
    with pytest.raises(RuntimeMissingError, match=runner.wanted[0]) as caught, runner:
        pass
    assert "onnxruntime-gpu" in caught.value.hint


def test_a_provider_that_does_not_start_is_never_replaced_by_the_cpu(tmp_path, monkeypatch):
    path = write_conv_chain(tmp_path / "m.onnx")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises((RuntimeMissingError, ModelError)),
        open_runner("onnxruntime-cuda", path, 1),
    ):
        pass
