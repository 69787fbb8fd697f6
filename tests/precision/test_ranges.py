"""Ranges of every value of a network, against the outputs of PyTorch's layers."""

import copy

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.errors import NumericsError
from catro_deploy.precision import ranges
from catro_deploy.precision.ranges import Range, find_ranges
from catro_deploy.precision.thresholds import BINS
from tests.precision.nets import SHAPE, concat, images, network


@pytest.mark.parametrize("dynamic", [False, True])
def test_extremes_are_those_of_the_layers(dynamic):
    model, inputs = concat().eval(), images(5)
    with torch.inference_mode():
        stem = model.stem(torch.from_numpy(inputs)).numpy()
        logits = model(torch.from_numpy(inputs)).numpy()
    found = find_ranges(network("concat", dynamic=dynamic), inputs, "min-max")
    first = next(node for node in network("concat", dynamic=dynamic).graph.node if node.op_type == "Conv")
    for name, values in (("image", inputs), (first.output[0], stem), ("logits", logits)):
        low, high = min(0, values.min()), max(0, values.max())
        assert (found[name].low, found[name].high) == pytest.approx((low, high), rel=1e-5)


def test_equal_images_give_equal_ranges_and_clipping_is_reported():
    proto, inputs = network("concat"), images(4)
    found = find_ranges(proto, inputs, "percentile", 99.0)
    assert found == find_ranges(proto, inputs, "percentile", 99.0)
    whole = find_ranges(proto, inputs, "min-max")
    assert found["image"].low > whole["image"].low
    assert 0.01 < found["image"].clipped < 0.025
    assert found["logits"] == whole["logits"]  # too few to clip any


def test_values_are_drawn_evenly_from_all_places_of_all_images(monkeypatch):
    """In every second image the right half has large values; always the same places of a row would hold none or all."""
    inputs = np.random.default_rng(0).uniform(-1, 1, (128, *SHAPE)).astype(np.float32)
    inputs[::2, :, :, SHAPE[2] // 2 :] *= 10
    whole = find_ranges(network("concat"), inputs, "percentile", 95.0)["image"]
    monkeypatch.setattr(ranges, "MOST_VALUES", inputs.size // SHAPE[2])  # every 32nd value of rows with 32 values
    some = find_ranges(network("concat"), inputs, "percentile", 95.0)["image"]
    assert (some.low, some.high) == pytest.approx((whole.low, whole.high), rel=0.1)
    assert some.clipped == pytest.approx(whole.clipped, rel=0.1)


FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


@given(FINITE, FINITE, FINITE)
def test_a_value_is_counted_in_the_bin_between_whose_edges_it_is(value, one, other):
    low, high = min(value, one, other, 0.0), max(value, one, other, 0.0)
    (place,) = np.flatnonzero(ranges._counts(np.array([value], np.float32), low, high))
    edges = np.linspace(low, high, BINS + 1)
    tolerance = 1e-9 * (high - low)
    assert edges[place] - tolerance <= value <= edges[place + 1] + tolerance


def test_a_value_that_is_always_zero_has_an_empty_range():
    proto = copy.deepcopy(network("concat"))
    for tensor in proto.graph.initializer:
        if tensor.name.startswith("left"):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(tuple(tensor.dims), np.float32), tensor.name))
    assert Range(0.0, 0.0) in find_ranges(proto, images(2), "mse").values()


def test_a_value_that_is_not_finite_is_named():
    inputs = images(2)
    inputs[1, 0, 0, 0] = np.nan
    with pytest.raises(NumericsError, match=r"\bimage\b"):
        find_ranges(network("concat"), inputs, "min-max")
