"""Quantisation-aware training: the module computes what ONNX Runtime does, and its weights return to the file."""

import copy
import itertools

import numpy as np
import pytest
import torch

from catro_deploy.errors import ModelError
from catro_deploy.precision.aware import aware, rounded_weights
from catro_deploy.precision.graph import layers_of
from catro_deploy.precision.int8 import TENSORRT, X86, quantised
from catro_deploy.precision.ranges import find_ranges
from tests.precision.nets import images, network, run


def in_form(name, form, **options):
    proto = network(name)
    return quantised(proto, find_ranges(proto, images(8), "min-max"), form, **options)


def logits(found, inputs):
    with torch.no_grad():
        return found.network(torch.tensor(inputs)).numpy()


@pytest.mark.parametrize(
    ("name", "form", "narrow", "chosen"),
    [
        ("cifar_resnet20", TENSORRT, False, slice(6)),
        ("torchvision:mobilenet_v2", X86, False, slice(-12, -1)),
        *itertools.product(["concat"], [X86, TENSORRT], [False, True], [slice(1), slice(5)]),
    ],
)
def test_it_computes_what_the_integers_do(name, form, narrow, chosen):
    """Values near the middle of two integers may be rounded either way, by processor: most images agree, not all."""
    inputs, layers = images(8, seed=1), list(layers_of(network(name).graph))
    integers = in_form(name, form, only=layers[chosen], narrow=narrow)
    expected = run(integers, inputs)
    differences = np.abs(logits(aware(network(name), integers), inputs) - expected).mean(1)
    lost = np.abs(run(network(name), inputs) - expected).mean(1)
    assert np.median(differences) < 0.1 * np.median(lost)


def test_all_layers_train_through_the_rounding():
    integers = in_form("concat", X86)
    found = aware(network("concat"), integers)
    found.network(torch.tensor(images(4))).square().sum().backward()
    assert len(found.names) == 2 * len(layers_of(network("concat").graph))
    assert all(weights.grad.abs().sum() > 0 for weights in found.network.parameters())


def test_weights_go_back_where_they_came_from():
    source = network("concat")
    found = aware(source, in_form("concat", TENSORRT))
    same = found.trained(source)
    assert same.SerializeToString() == source.SerializeToString()
    with torch.no_grad():
        found.parameter("fc.bias").add_(1)
    inputs = images(2)
    np.testing.assert_allclose(run(found.trained(source), inputs), run(source, inputs) + 1, rtol=1e-5)
    assert run(source, inputs).shape == (2, 5)


def test_a_scale_follows_the_largest_weight():
    """With ``largest`` 4 and weights up to 8, the scale is 2: 3 is 1.5 scales, which is rounded to the even 2."""
    weights = torch.tensor([[8.0, 3.0, -4.9], [0.5, 0.26, -1.0], [0.0, 0.0, 0.0]])
    by_row = rounded_weights(weights, 4, 0)
    assert by_row.tolist() == [[8, 4, -4], [0.5, 0.25, -1], [0, 0, 0]]
    assert rounded_weights(weights, 4, None)[1].tolist() == [0, 0, 0]


def test_an_operator_that_cannot_be_trained_is_named():
    source = copy.deepcopy(network("concat"))
    source.graph.node[1].op_type = "Mystery"
    with pytest.raises(ModelError, match="Mystery"):
        aware(source, source)


def test_training_brings_back_what_coarse_integers_lose():
    """Two values in five are clipped, and weights have seven bits; the ranges stay, the weights are trained."""
    source, seen, fresh = network("concat"), images(64), images(8, seed=1)
    ranges = find_ranges(source, seen, "percentile", percentile=80)

    def in_integers(proto):
        return quantised(proto, ranges, X86, narrow=True)

    found = aware(source, in_integers(source))
    expected, inputs = torch.tensor(run(source, seen)), torch.tensor(seen)
    optimizer = torch.optim.Adam(found.network.parameters(), 2e-3)
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(found.network(inputs), expected).backward()
        optimizer.step()
    aims = run(source, fresh)
    before, after = (
        np.square(run(in_integers(proto), fresh) - aims).mean() for proto in (source, found.trained(source))
    )
    assert after < 0.5 * before
