"""Candidates are timed as they would be served."""

import numpy as np
import pytest

from catro_deploy.calibration import load_latency_protocol
from catro_deploy.graph.onnx.interface import Interface
from catro_deploy.latency.candidate import candidate_timer
from catro_deploy.runtimes import open_runner
from catro_deploy.transports.execution import Use
from tests.latency.profile.quick import SHAPE, tiny_network
from tests.stages.conftest import TRIAL

RAW = Interface("uint8", "nhwc", "softmax", (0.5,) * 3, (0.25,) * 3)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_with_the_preprocessing_of_the_exported_files(tmp_path, precision):
    (tmp_path / "trial.toml").write_text(TRIAL)
    use = Use("x86-cpu", "onnxruntime", precision, threads=1, batch=1, interface=RAW)
    model, protocol = tiny_network(), load_latency_protocol(str(tmp_path / "trial.toml"))
    with candidate_timer(model, SHAPE, use, protocol, 18) as timer:
        found = timer.measure(model)
        for name in ("original", "pruned"):
            with open_runner("onnxruntime", timer.files.folder / f"{name}.onnx", 1) as runner:
                assert (runner.input_type, runner.image_shape) == (np.uint8, (*SHAPE[1:], SHAPE[0]))
    assert min(found.candidate_us, found.original_us) > 0
