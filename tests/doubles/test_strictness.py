"""The double of TensorRT fails where TensorRT fails."""

import subprocess
import sys

import pytest

from tests.onnx_files import write_conv_chain

pytestmark = pytest.mark.usefixtures("every_tensorrt")

START = """
import sys
import tensorrt as trt
from polygraphy.backend.trt import Profile, create_config, create_network, engine_from_bytes, get_trt_logger
builder, network = create_network(strongly_typed=True)
assert trt.OnnxParser(network, get_trt_logger()).parse_from_file(sys.argv[1])
given = network.get_input(0)
shape = (1, *tuple(given.shape)[1:])
profiles = [Profile().add(given.name, shape, shape, shape)]
config = create_config(builder, network, profiles=profiles)
"""
PRECISION_FLAG = """
if hasattr(trt.BuilderFlag, "FP16"):
    config.set_flag(trt.BuilderFlag.FP16)
    assert builder.build_serialized_network(network, config) is None
    config.clear_flag(trt.BuilderFlag.FP16)
assert builder.build_serialized_network(network, config) is not None
"""
DYNAMIC_ON_DLA = """
config.default_device_type = trt.DeviceType.DLA
assert builder.build_serialized_network(network, config) is None
"""
EARLY_CAPTURE = """
import numpy as np
from polygraphy.cuda import DeviceArray, Stream
from catro_deploy.errors import FaultError
from catro_deploy.runtimes.cuda import CaptureError, captured
engine = engine_from_bytes(bytes(builder.build_serialized_network(network, config)))
context, stream = engine.create_execution_context(), Stream()
assert context.set_input_shape(given.name, shape)
kept = []
for name in (engine.get_tensor_name(place) for place in range(engine.num_io_tensors)):
    kept.append(DeviceArray(tuple(context.get_tensor_shape(name)), np.float32))
    context.set_tensor_address(name, kept[-1].ptr)
def capture():
    with captured(stream.ptr):
        if not context.execute_async_v3(stream.ptr):
            raise FaultError("not captured")
try:
    capture()
except CaptureError:
    assert context.execute_async_v3(stream.ptr)
    capture()
else:
    raise AssertionError("captured before a first inference")
"""


@pytest.mark.parametrize("script", [PRECISION_FLAG, DYNAMIC_ON_DLA, EARLY_CAPTURE], ids=["precision", "dla", "capture"])
def test_it_fails_where_tensorrt_fails(tmp_path, script):
    model = write_conv_chain(tmp_path / "network.onnx", layers=1, size=16, batch="n")
    done = subprocess.run([sys.executable, "-c", START + script, model], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
