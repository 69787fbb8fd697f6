import copy

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from catro_deploy.precision.graph import layers_of
from catro_deploy.precision.int8 import X86, quantised
from catro_deploy.precision.ranges import find_ranges
from catro_deploy.precision.sensitivity import fewest_kept, logits_of, sensitivities
from tests.precision.nets import images, network, run


@given(st.integers(0, 40), st.integers(0, 60))
def test_the_fewest_that_must_be_kept(most, needed):
    tried = []

    def keeps(count):
        tried.append(count)
        return count >= needed

    assert fewest_kept(most, keeps) == (needed if needed <= most else None)
    assert all(0 <= count <= most for count in tried)
    assert len(tried) <= 2 * len(bin(most)) + 2


def test_the_most_sensitive_layer_comes_first():
    """One channel is 1000 times as large as the rest, and undone later: with one scale for all, the rest is lost."""
    proto = copy.deepcopy(network("concat"))
    for tensor in proto.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        if tensor.name in ("right.weight", "right.bias"):
            values[0] *= 1000
        if tensor.name == "last.weight":
            values[:, 16] /= 1000
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    inputs = images(16)
    labels = run(proto, inputs).argmax(axis=1)
    ranges = find_ranges(proto, inputs, "min-max")
    calls = []
    found = sensitivities(
        proto,
        list(layers_of(proto.graph)),
        lambda only: quantised(proto, ranges, X86, only=only, by_channel=False),
        inputs,
        labels,
        lambda: calls.append(1),
    )
    assert len(calls) == len(found) == 5
    assert {found[0].layer, found[1].layer} == {"right", "last"}
    assert found[1].error > 5 * found[2].error
    assert [one.drop_points for one in found] == sorted((one.drop_points for one in found), reverse=True)


def test_logits_are_those_of_single_images():
    for dynamic in (False, True):
        np.testing.assert_allclose(
            logits_of(network("concat", dynamic=dynamic), images(3)), run(network("concat"), images(3)), atol=1e-5
        )
