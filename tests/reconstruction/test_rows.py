import pytest
import torch
from torch import nn

from catro_deploy.reconstruction.rows import (
    outputs_at,
    positions_of,
    rows_at,
    set_weight_matrix_,
    weight_matrix,
    why_opaque,
)

LAYERS = [
    (nn.Conv2d(6, 8, 3, stride=2, padding=1), (2, 6, 9, 11)),
    (nn.Conv2d(6, 8, (3, 5), dilation=2, padding="same", groups=2), (2, 6, 9, 11)),
    (nn.Conv2d(6, 6, 3, groups=6, padding=1, padding_mode="reflect"), (2, 6, 9, 11)),
    (nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 6, 9, 11)),
    (nn.ConvTranspose2d(6, 8, (2, 4), stride=2, padding=(0, 3), dilation=(2, 1)), (2, 6, 9, 11)),
    (nn.Conv1d(6, 8, 3, padding=1), (2, 6, 9)),
    (nn.Conv3d(6, 8, 3, padding=1), (2, 6, 5, 6, 7)),
    (nn.Linear(6, 8), (3, 6)),
    (nn.Linear(6, 8), (3, 4, 5, 6)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: str(value)[:60])
def test_rows_times_weights_are_the_outputs(layer, shape):
    value = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = layer(value)
        bias = layer.bias if isinstance(layer, nn.Linear) else layer.bias.view(1, -1, *[1] * (output.ndim - 2))
        positions = positions_of(layer, output.shape, 10, torch.Generator().manual_seed(1))
        found = rows_at(layer, value, positions) @ weight_matrix(layer)
    torch.testing.assert_close(found, outputs_at(layer, output - bias, positions), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: str(value)[:60])
def test_weights_survive_the_way_there_and_back(layer, shape):
    before = layer.weight.detach().clone()
    matrix = weight_matrix(layer).clone()
    with torch.no_grad():
        layer.weight.zero_()
    set_weight_matrix_(layer, matrix)
    assert torch.equal(layer.weight, before)


def test_a_subclass_with_a_forward_of_its_own_is_not_looked_into():
    class Same(nn.Conv2d):
        def forward(self, x):
            return super().forward(nn.functional.pad(x, (1, 1, 1, 1)))

    assert "Same" in why_opaque(Same(3, 4, 3))
    assert not why_opaque(nn.Conv2d(3, 4, 3))
    assert why_opaque(nn.ReLU())


@pytest.mark.parametrize("kernel", [1, 3])
def test_rows_and_outputs_are_the_same_in_either_memory_layout(kernel):
    conv = nn.Conv2d(6, 4, kernel, stride=2, padding=1, groups=2)
    value = torch.randn(3, 6, 9, 7)
    output = conv(value)
    positions = positions_of(conv, output.shape, 5, torch.Generator().manual_seed(0))
    for function, argument in ((rows_at, value), (outputs_at, output)):
        last = argument.contiguous(memory_format=torch.channels_last)
        assert torch.equal(function(conv, argument, positions), function(conv, last, positions))
