import json

import numpy as np
import pytest

from catro_deploy import __version__
from catro_deploy.errors import RunFolderError, SettingsError
from catro_deploy.files import file_hash
from catro_deploy.progress import Silent
from catro_deploy.runtimes import open_runner
from catro_deploy.stages.export import export
from tests.graph.onnx.test_export import assert_same_as_torch
from tests.stages import colours


def test_the_stage_writes_both_files_with_all_that_their_user_must_know(tmp_path):
    run = colours.make_run(tmp_path, pruned=colours.blind_to(2))
    exported = export(colours.settings(), run, Silent())
    assert (exported.original, exported.pruned) == (run.original_onnx, run.pruned_onnx)
    for name in ("original", "pruned"):
        with open_runner("onnxruntime", tmp_path / f"{name}.onnx", 1) as runner:
            described = dict(runner.metadata)
        assert json.loads(described["classes"]) == ["red", "green", "blue"]
        assert json.loads(described["mean"]) == [0.5, 0.5, 0.5]
        assert json.loads(described["std"]) == [0.25, 0.25, 0.25]
        assert (described["layout"], described["colours"]) == ("NCHW", "RGB")
        assert (described["network"], described["catro_deploy_version"]) == (name, __version__)
        assert described["plan_sha256"] == file_hash(run.plan)
    assert_same_as_torch(colours.ColourNet(3).eval(), run.original_onnx, 1)
    assert_same_as_torch(colours.blind_to(2).eval(), run.pruned_onnx, 1)


def test_without_fine_tuned_weights_the_stage_says_what_to_run(tmp_path):
    run = colours.make_run(tmp_path)
    run.weights.unlink()
    with pytest.raises(RunFolderError, match="catro-deploy finetune"):
        export(colours.settings(), run, Silent())
    assert not run.original_onnx.exists()


def test_half_precision_is_for_targets_that_run_so(tmp_path):
    run = colours.make_run(tmp_path, pruned=colours.blind_to(2))
    exported = export(colours.settings(prune={"target": "jetson-orin"}), run, Silent())
    assert exported.half == (run.onnx("original", "fp16"), run.onnx("pruned", "fp16"))
    with open_runner("onnxruntime", run.onnx("pruned", "fp16"), 1) as runner:
        described = dict(runner.metadata)
    assert (described["network"], described["precision"]) == ("pruned", "fp16")
    assert described["plan_sha256"] == file_hash(run.plan)
    assert export(colours.settings(), run, Silent()).half == ()
    assert not any(path.exists() for path in exported.half)


def test_more_classes_than_there_are_cannot_be_at_the_top(tmp_path):
    run = colours.make_run(tmp_path)
    with pytest.raises(SettingsError, match="top_k = 4, but the network has 3 classes"):
        export(colours.settings(export={"top_k": 4}), run, Silent())
    assert not run.pruned_onnx.exists()


@pytest.mark.parametrize("target", ["x86-cpu", "jetson-orin"])
def test_all_files_take_the_input_that_is_asked_for(tmp_path, target):
    """The original too, or the latencies would not be comparable."""
    run = colours.make_run(tmp_path, pruned=colours.blind_to(2))
    asked = {"input": "uint8", "layout": "nhwc", "output": "softmax", "top_k": 2}
    exported = export(colours.settings(export=asked, prune={"target": target}), run, Silent())
    files = (exported.original, exported.pruned, *exported.half)
    assert len(files) == (4 if target == "jetson-orin" else 2)
    red = np.zeros((1, 8, 8, 3), np.uint8)
    red[..., 0] = 255
    for file in files:
        with open_runner("onnxruntime", file, 1) as runner:
            assert (runner.input_type, runner.image_shape) == (np.uint8, (8, 8, 3))
            described = dict(runner.metadata)
            prediction = runner.infer(red)
        assert (described["layout"], described["output"], described["top_k"]) == ("NHWC", "softmax", "2")
        assert described["pixels"].startswith("uint8; normalised inside the network")
        # Logits are half the normalised means: 1, -1, -1; the pruned network never predicts blue.
        logits = np.array([1.0, -1.0, -np.inf if "pruned" in file.name else -1.0])
        np.testing.assert_allclose(prediction[0], np.exp(logits) / np.exp(logits).sum(), atol=1e-3)
