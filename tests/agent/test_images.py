"""Images in the form that a runner's model takes."""

import numpy as np
import pytest

from catro_deploy.agent.images import normalise, prepared, random_images
from catro_deploy.graph.onnx.interface import Interface, attach_
from catro_deploy.runtimes import open_runner
from tests.onnx_files import write_conv_chain

MEAN, STD = (0.25, 0.5, 0.75), (0.5, 0.25, 1.0)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("kind", ["float", "uint8"])
def test_by_type_and_layout(tmp_path, kind, layout):
    file = write_conv_chain(tmp_path / "model.onnx", metadata={"layout": layout.upper()})
    attach_(file, Interface(kind, layout, mean=MEAN, std=STD))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), dtype=np.uint8)
    with open_runner("onnxruntime", file, 1) as runner:
        found = prepared(pixels, MEAN, STD, runner)
        drawn = random_images(runner, 5, np.random.default_rng(0))
        runner.infer(found[:1])
    expected = pixels if kind == "uint8" else normalise(pixels, MEAN, STD)
    np.testing.assert_array_equal(found, expected if layout == "nchw" else expected.transpose(0, 2, 3, 1))
    assert found.flags.c_contiguous
    assert drawn.shape == (5, *found.shape[1:])
    assert drawn.dtype == found.dtype == (np.uint8 if kind == "uint8" else np.float32)
    assert np.ptp(drawn) > (200 if kind == "uint8" else 2)
