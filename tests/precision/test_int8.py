"""All forms of quantised networks: their graphs as the runtimes require them, and what they compute."""

import copy
import functools

import numpy as np
import pytest
from onnx import numpy_helper

from catro_deploy.errors import ModelError
from catro_deploy.precision.fused import fused
from catro_deploy.precision.graph import layers_of
from catro_deploy.precision.int8 import (
    FORMS,
    OPENVINO,
    TENSORRT,
    X86,
    for_scales_in_half,
    form_of,
    quantised,
    seven_bits,
)
from catro_deploy.precision.ranges import find_ranges
from tests.precision.nets import images, network, run

NAMES = ("cifar_resnet20", "torchvision:mobilenet_v2", "concat")


def in_form(name, form, **options):
    """The network ``name`` in ``form``, which must not be changed."""
    return made(name, form.name, **options)


@functools.cache
def made(name, form, **options):
    proto = network(name)
    return quantised(proto, find_ranges(proto, images(8), "min-max"), FORMS[form], **options)


def constants(proto):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def of_type(proto, *types):
    return [node for node in proto.graph.node if node.op_type in types]


def relative_error(proto, name):
    inputs = images(6, seed=1)
    expected, found = run(network(name), inputs), run(proto, inputs)
    return float(((found - expected) ** 2).mean() / (expected**2).mean())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_it_computes_nearly_the_same_in_a_quarter_of_the_bytes(name, form):
    found = in_form(name, form)
    assert relative_error(found, name) < 0.05
    described = {prop.key: prop.value for prop in found.metadata_props}
    assert (described["network"], described["precision"]) == ("x", "int8")
    if form is not TENSORRT:
        weights = [values for values in constants(found).values() if values.ndim == 4]
        assert weights
        assert all(values.dtype == np.int8 for values in weights)


@pytest.mark.parametrize("name", NAMES)
def test_on_x86_all_of_it_is_fused_to_integer_kernels(tmp_path, name):
    file = tmp_path / "x.onnx"
    file.write_bytes(in_form(name, X86).SerializeToString())
    found = fused(file)
    assert found.weighted_in_float == 0
    assert found.operators["QLinearConv"] == len(of_type(network(name), "Conv"))
    assert found.operators.get("QLinearAdd", 0) == len(of_type(network(name), "Add"))
    assert found.conversions <= 4  # around the pooling, and at both ends
    assert found.integer >= len(layers_of(network(name).graph))


@pytest.mark.parametrize("name", NAMES)
def test_openvino_fuses_all_of_it_to_integer_kernels_and_rounds_no_logits(tmp_path, name):
    file = tmp_path / "x.onnx"
    found = in_form(name, OPENVINO)
    file.write_bytes(found.SerializeToString())
    operators = fused(file, "openvino").operators
    before = network(name)
    assert operators["Convolution_I8"] == len(of_type(before, "Conv"))
    assert operators.get("FullyConnected_I8", 0) == len(of_type(before, "Gemm"))
    in_float = {"Convolution", "FullyConnected", "Eltwise", "Reduce", "Pooling"} & operators.keys()
    assert not in_float
    assert operators["Subgraph"] == 1  # the images are quantised
    last = next(node for node in found.graph.node if found.graph.output[0].name in node.output)
    assert last.op_type == of_type(before, "Gemm", "Conv")[-1].op_type
    assert all(values.dtype == np.float32 for name, values in constants(found).items() if name.endswith(".bias"))


def test_openvino_takes_what_has_no_integer_kernel_as_the_layer_before_puts_it_out():
    found = in_form("hard_swish", OPENVINO)
    made_by = {output: node for node in found.graph.node for output in node.output}
    assert [made_by[node.input[0]].op_type for node in of_type(found, "HardSwish")] == ["Conv"]
    second = of_type(found, "Conv")[1]
    assert made_by[second.input[0]].op_type == "DequantizeLinear"


@pytest.mark.parametrize("name", NAMES)
def test_tensorrt_gets_signed_integers_without_zero_points(name):
    """The rules of TensorRT's developer guide on explicit quantisation."""
    found = in_form(name, TENSORRT)
    values, made_by = constants(found), {name: node for node in found.graph.node for name in node.output}
    pairs = of_type(found, "QuantizeLinear", "DequantizeLinear")
    assert pairs
    for node in pairs:
        zero = values[node.input[2]]
        assert zero.dtype == np.int8
        assert not zero.any()
    for node in of_type(found, "Conv", "Gemm"):
        weight = made_by[made_by[node.input[1]].input[0]]
        assert weight.op_type == "QuantizeLinear"
        assert values[weight.input[1]].shape == values[weight.input[0]].shape[:1]
        assert made_by[node.input[0]].op_type == "DequantizeLinear"
        assert all(values[bias].dtype == np.float32 for bias in node.input[2:])
    before = network(name)
    for kind in ("Relu", "Clip"):
        assert len(of_type(found, kind)) == len(of_type(before, kind))


@pytest.mark.parametrize("name", ["cifar_resnet20", "torchvision:mobilenet_v2"])
def test_tensorrt_reads_one_branch_of_a_sum_straight_from_its_convolution(name):
    found = in_form(name, TENSORRT)
    made_by = {output: node for node in found.graph.node for output in node.output}
    sums = of_type(found, "Add")
    assert len(sums) == len(of_type(network(name), "Add"))
    for node in sums:
        assert sorted(made_by[value].op_type for value in node.input) == ["Conv", "DequantizeLinear"]


def test_the_branch_that_is_read_straight_is_the_longer_one():
    found = in_form("cifar_resnet20", TENSORRT)
    made_by = {output: node for node in found.graph.node for output in node.output}
    convs = [made_by[value] for node in of_type(found, "Add") for value in node.input if value in made_by]
    straight = [node.input[1] for node in convs if node.op_type == "Conv"]
    assert all("conv2" in name for name in straight)
    assert not any("downsample" in name for name in straight)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_layers_are_kept_or_alone(form):
    def weights(proto):
        """Modules whose weights are still in float32 and read by their layer directly."""
        floats = {name for name, values in constants(proto).items() if values.dtype == np.float32}
        return {node.input[1].removesuffix(".weight") for node in of_type(proto, "Conv") if node.input[1] in floats}

    kept = in_form("concat", form, keep=("stem", "left"))
    assert weights(kept) == {"stem", "left"}
    assert weights(in_form("concat", form, only=("right",))) == {"stem", "left", "last"}
    assert relative_error(kept, "concat") <= relative_error(in_form("concat", form), "concat") * 1.5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_with_all_layers_kept_nothing_is_quantised(name, form):
    """Sums, concatenations and poolings between layers in floating point stay in floating point as well."""
    found = in_form(name, form, keep=tuple(layers_of(network(name).graph)))
    assert of_type(found, "QuantizeLinear", "DequantizeLinear") == []
    np.testing.assert_allclose(run(found, images(2)), run(network(name), images(2)), rtol=1e-5, atol=1e-5)


def test_weights_of_seven_bits_and_scales_of_a_whole_layer():
    narrow = constants(in_form("concat", X86, narrow=True))
    assert max(abs(values).max() for values in narrow.values() if values.dtype == np.int8 and values.ndim == 4) <= 64
    whole = constants(in_form("concat", X86, by_channel=False))
    assert whole["stem.weight_scale"].size == 1
    assert constants(in_form("concat", X86))["stem.weight_scale"].size == 16


@pytest.mark.parametrize(
    ("sets", "seven"),
    [
        (["avx2", "fma"], True),
        (["avx2", "avx512f"], True),
        (["avx2", "avx512f", "avx512_vnni"], False),
        (["avx2", "avx_vnni"], False),
        (["asimd", "asimddp"], False),
        ([], False),
    ],
)
def test_processors_that_sum_in_sixteen_bits_get_weights_of_seven(sets, seven):
    assert seven_bits(sets) is seven


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_channels_and_layers_of_zeros_harm_nothing(form):
    proto = copy.deepcopy(network("concat"))
    for tensor in proto.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        if tensor.name == "stem.weight":
            values[3] = 0
        if tensor.name.startswith("left"):
            values[:] = 0
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    found = quantised(proto, find_ranges(proto, images(4), "min-max"), form)
    expected, logits = run(proto, images(3)), run(found, images(3))
    assert np.isfinite(logits).all()
    assert np.abs(logits - expected).max() < 0.2 * np.abs(expected).max()


def test_what_is_quantised_already_is_refused():
    once = in_form("concat", X86)
    with pytest.raises(ModelError, match="DequantizeLinear, QuantizeLinear"):
        quantised(once, find_ranges(once, images(1), "min-max"), X86)


def test_runtimes_have_their_forms():
    assert form_of("onnxruntime") is X86
    assert form_of("openvino") is form_of("openvino-gpu") is form_of("openvino-npu") is OPENVINO
    assert form_of("tensorrt") is form_of("onnxruntime-tensorrt") is TENSORRT


def test_scales_in_half_precision_need_opset_19():
    """With them, the rest of a quantised network can be in half precision: see stages.integers."""
    proto = for_scales_in_half(network("concat"))
    assert for_scales_in_half(proto) is proto
    found = quantised(proto, find_ranges(proto, images(2), "min-max"), TENSORRT)
    assert {entry.version for entry in found.opset_import if entry.domain == ""} == {19}
    assert (run(proto, images(2)) == run(network("concat"), images(2))).all()
