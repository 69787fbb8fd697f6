"""The closed form of a step, against least squares with NumPy on rows that are unfolded here."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from catro_deploy.reconstruction import solve
from catro_deploy.reconstruction.solve import RIDGE, SCARCITY, StepSolver


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomised(layer: nn.Module, seed: int = 5) -> nn.Module:
    with torch.no_grad():
        for place, parameter in enumerate(layer.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=seed + place))
    return layer.double()


def solved(layers: list[nn.Module], inputs: list[torch.Tensor], target: torch.Tensor) -> list[solve.LayerFit]:
    solver = StepSolver(layers, target[0, 0].numel(), len(target), torch.Generator().manual_seed(0))
    for part in range(0, len(target), 5):  # in batches, the last one short
        solver.add([value[part : part + 5] for value in inputs], target[part : part + 5])
    return solver.solve_()


def ridge(rows: np.ndarray, targets: np.ndarray, before: np.ndarray, *, bias: bool) -> tuple:
    """min |t - W'x - b|^2 + share * mean diagonal * |W - before|^2, as least squares of an augmented system."""
    share = max(RIDGE, SCARCITY * rows.shape[1] / len(rows))
    centred = rows - rows.mean(0) if bias else rows
    strength = np.sqrt(share * (centred**2).sum(0).mean())
    size = rows.shape[1]
    ones = np.ones((len(rows), int(bias)))
    system = np.block([[rows, ones], [strength * np.eye(size), np.zeros((size, int(bias)))]])
    found = np.linalg.lstsq(system, np.concatenate([targets, strength * before]), rcond=None)[0]
    return found[:size], found[size] if bias else np.zeros(targets.shape[1])


def unfolded(value: torch.Tensor, conv: nn.Conv2d) -> np.ndarray:
    """Rows (images * positions, channels * kernel) of the input of ``conv``, by torch's own unfold."""
    patches = functional.unfold(value, conv.kernel_size, conv.dilation, conv.padding, conv.stride)
    return patches.movedim(1, 2).flatten(0, 1).numpy()


def as_rows(target: torch.Tensor) -> np.ndarray:
    return target.flatten(2).movedim(1, 2).flatten(0, 1).numpy()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2}, {"dilation": 2, "padding": 2}])
def test_a_convolution_is_solved_by_ridge_regression(options, bias):
    conv = randomised(nn.Conv2d(3, 4, 3, bias=bias, **options))
    value = drawn(12, 3, 6, 6) + 1
    target = drawn(*conv(value).shape, seed=1) + 0.5
    before = conv.weight.detach().flatten(1).T.numpy()
    weights, offset = ridge(unfolded(value, conv), as_rows(target), before, bias=bias)
    (fit,) = solved([conv], [value], target)
    np.testing.assert_allclose(conv.weight.detach().flatten(1).T, weights, atol=1e-9)
    if bias:
        np.testing.assert_allclose(conv.bias.detach(), offset, atol=1e-9)
    with torch.no_grad():
        outputs = functional.conv2d(value, conv.weight, None, conv.stride, conv.padding, conv.dilation)
        lost = (conv(value) - target).square().sum()
        total = (target - target.mean((0, 2, 3), keepdim=True)).square().sum()
    torch.testing.assert_close(fit.mean, outputs.mean((0, 2, 3)))
    torch.testing.assert_close(fit.variance, outputs.var((0, 2, 3), correction=0))
    assert fit.explained == pytest.approx(float(1 - lost / total))


def test_each_group_of_a_grouped_convolution_is_solved_for_its_own_outputs():
    conv = randomised(nn.Conv2d(4, 6, 3, padding=1, groups=2))
    value = drawn(10, 4, 5, 5)
    target = drawn(*conv(value).shape, seed=1)
    before = conv.weight.detach().clone()
    solved([conv], [value], target)
    for group in range(2):
        alone = nn.Conv2d(2, 3, 3, padding=1)
        out, inputs = slice(3 * group, 3 * group + 3), slice(2 * group, 2 * group + 2)
        weights, offset = ridge(
            unfolded(value[:, inputs], alone),
            as_rows(target[:, out]),
            before[out].flatten(1).T.numpy(),
            bias=True,
        )
        np.testing.assert_allclose(conv.weight[out].detach().flatten(1).T, weights, atol=1e-9)
        np.testing.assert_allclose(conv.bias[out].detach(), offset, atol=1e-9)


def test_layers_that_are_added_up_are_solved_together():
    first, second = randomised(nn.Conv2d(3, 4, 3, padding=1)), randomised(nn.Conv2d(2, 4, 1, bias=False), 9)
    one, other = drawn(10, 3, 5, 5), drawn(10, 2, 5, 5, seed=3)
    target = drawn(10, 4, 5, 5, seed=1)
    before = np.concatenate([layer.weight.detach().flatten(1).T.numpy() for layer in (first, second)])
    rows = np.concatenate([unfolded(one, first), unfolded(other, second)], 1)
    weights, offset = ridge(rows, as_rows(target), before, bias=True)
    fits = solved([first, second], [one, other], target)
    found = np.concatenate([layer.weight.detach().flatten(1).T.numpy() for layer in (first, second)])
    np.testing.assert_allclose(found, weights, atol=1e-9)
    np.testing.assert_allclose(first.bias.detach(), offset, atol=1e-9)
    assert len(fits) == 2
    assert fits[0].explained == fits[1].explained


def test_one_bias_is_enough_for_several_layers():
    layers = [randomised(nn.Linear(3, 2)), randomised(nn.Linear(3, 2), 9)]
    inputs, target = [drawn(20, 3), drawn(20, 3, seed=1)], drawn(20, 2, seed=2) + 7
    solved_bias = StepSolver(layers, 1, 20, torch.Generator())
    solved_bias.add(inputs, target)
    solved_bias.solve_()
    with torch.no_grad():
        total = sum(layer(value) for layer, value in zip(layers, inputs, strict=True))
    torch.testing.assert_close(total.mean(0), target.mean(0))
    assert not layers[1].bias.any()


def linear_step(layer: nn.Linear, value: torch.Tensor, target: torch.Tensor) -> solve.LayerFit:
    solver = StepSolver([layer], 1, len(value), torch.Generator())
    for part in range(0, len(value), 7):
        solver.add([value[part : part + 7]], target[part : part + 7])
    return solver.solve_()[0]


@pytest.mark.parametrize("count", [30, 6])
def test_the_fewer_rows_the_larger_the_ridge(count):
    """30 images are solved by the Gram matrix of the columns, 6 (fewer than columns) by that of the images."""
    layer = randomised(nn.Linear(8, 3))
    value, target = drawn(count, 8) + 2, drawn(count, 3, seed=1)
    before = layer.weight.detach().T.numpy().copy()
    weights, offset = ridge(value.numpy(), target.numpy(), before, bias=True)
    fit = linear_step(layer, value, target)
    np.testing.assert_allclose(layer.weight.detach().T, weights, atol=1e-7)
    np.testing.assert_allclose(layer.bias.detach(), offset, atol=1e-7)
    with torch.no_grad():
        outputs = layer(value) - layer.bias
        lost, total = (layer(value) - target).square().sum(), (target - target.mean(0)).square().sum()
    torch.testing.assert_close(fit.mean, outputs.mean(0))
    torch.testing.assert_close(fit.variance, outputs.var(0, correction=0))
    assert fit.explained == pytest.approx(float(1 - lost / total))


@pytest.mark.parametrize("count", [30, 6])
@pytest.mark.parametrize("layer", [nn.Linear(8, 3), nn.Linear(8, 3, bias=False)])
def test_of_targets_that_never_change_all_is_explained_or_nothing(layer, count):
    """A gate that is always closed: its variance is 0 or a rounding error, and R^2 must not be -1e268."""
    target = torch.full((count, 3), 0.1, dtype=torch.float64) * (1 + 1e-16 * drawn(count, 3))
    found = linear_step(randomised(layer), drawn(count, 8) + 2, target).explained
    assert found in (0.0, 1.0)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_of_many_columns_is_solved_from_rows_as_it_would_be_directly(monkeypatch, bias):
    direct, by_rows = (randomised(nn.Conv2d(5, 4, 3, padding=1, bias=bias)) for _ in range(2))
    value, target = drawn(2, 5, 4, 4), drawn(2, 4, 4, 4, seed=1)
    solved([direct], [value], target)
    monkeypatch.setattr(solve, "LARGEST_COLUMNS", 40)  # of 45 columns; the 32 rows are fewer than that, too
    fit = solved([by_rows], [value], target)[0]
    monkeypatch.undo()
    torch.testing.assert_close(by_rows.weight, direct.weight, atol=1e-5, rtol=1e-5)
    assert fit.variance.isfinite().all()


def test_of_a_layer_of_many_columns_no_more_rows_are_kept_than_the_system_may_have(monkeypatch):
    monkeypatch.setattr(solve, "LARGEST_COLUMNS", 40)
    conv = randomised(nn.Conv2d(5, 4, 3, padding=1))
    solver = StepSolver([conv], 64, 10, torch.Generator().manual_seed(0))
    target = drawn(10, 4, 8, 8, seed=1)
    solver.add([drawn(10, 5, 8, 8)], target)
    assert sum(len(rows) for rows, _ in solver._rows) == 40
    before = (conv(drawn(10, 5, 8, 8)) - target).square().mean()
    solver.solve_()
    assert (conv(drawn(10, 5, 8, 8)) - target).square().mean() < before


def test_rows_are_unfolded_a_few_images_at_a_time(monkeypatch):
    whole, pieces = (randomised(nn.Conv2d(3, 4, 3, padding=1)) for _ in range(2))
    value, target = drawn(10, 3, 5, 5), drawn(10, 4, 5, 5, seed=1)
    solved([whole], [value], target)
    monkeypatch.setattr(solve, "CHUNK_BYTES", 1)
    solved([pieces], [value], target)
    torch.testing.assert_close(pieces.weight, whole.weight)


@pytest.mark.parametrize("fill", [0.0, 1.0, 3000.0])
@pytest.mark.parametrize("layer", [nn.Conv2d(4, 3, 3), nn.Conv2d(4, 3, 3, bias=False), nn.Conv2d(1, 3, 1)])
def test_maps_that_are_dead_or_constant_leave_finite_weights(layer, fill):
    with torch.no_grad():
        before = layer.weight.clone()
    value = torch.full((6, layer.in_channels, 5, 5), fill)
    value[:, :-1] += torch.randn(value[:, :-1].shape, generator=torch.Generator().manual_seed(0))
    target = layer(value).detach() + 1
    (fit,) = solved([layer], [value], target)
    assert layer.weight.isfinite().all()
    assert fit.variance.isfinite().all()
    assert (layer.weight - before).abs().max() < 10 * before.abs().max()
    assert (layer(value) - target).square().mean() <= 1.001  # no worse than before


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=4)])
@pytest.mark.parametrize("shape", [(10, 4, 6, 6), (4, 1, 1)], ids=["map", "constant"])
def test_what_is_given_and_channels_that_are_gone_do_not_count(layer, shape):
    value, given = drawn(10, layer.in_channels, 6, 6), drawn(*shape, seed=2)
    whole, kept = drawn(10, 7, 6, 6, seed=1), [0, 2, 3, 6]
    randomised(layer)
    solved([layer], [value], whole[:, kept] - given)
    expected = layer.weight.detach().clone(), layer.bias.detach().clone()
    randomised(layer)
    solver = StepSolver([layer], 36, 10, torch.Generator().manual_seed(0), kept)
    for part in (slice(0, 5), slice(5, 10)):
        solver.add([value[part]], whole[part], [given[part] if len(shape) == 4 else given])
    solver.solve_()
    for found, wanted in zip((layer.weight, layer.bias), expected, strict=True):
        torch.testing.assert_close(found.detach(), wanted)


def test_a_linear_layer_is_solved_for_the_kept_outputs():
    layer, value, whole, kept = nn.Linear(3, 2), drawn(20, 3), drawn(20, 5, seed=1), [1, 4]
    given = drawn(20, 2, seed=2)
    randomised(layer)
    first = StepSolver([layer], 1, 20, torch.Generator())
    first.add([value], whole[:, kept] - given)
    first.solve_()
    expected = layer.weight.detach().clone()
    randomised(layer)
    second = StepSolver([layer], 1, 20, torch.Generator(), kept)
    second.add([value], whole, [given])
    second.solve_()
    torch.testing.assert_close(layer.weight.detach(), expected)
