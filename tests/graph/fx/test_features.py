"""Feature maps and their scatter, against hooks in plain forward passes."""

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.catro.scatter import Scatter, ScatterMeter
from catro_deploy.errors import NumericsError
from catro_deploy.graph.fx.features import FEWEST_IMAGES, FeatureGraph, images_at_once
from tests.graph.networks import Residual, randomised
from tests.graph.opaque import Between, ByCount, Shared


def batches(classes: int = 3, each: int = 4, size: int = 8) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(each, 3, size, size, generator=generator) + label, label) for label in range(classes)]


def by_hook(model: nn.Module, module: str, after: nn.Module | None = None) -> Scatter:
    """Scatter of the output of ``module``, collected by a forward hook."""
    meter, seen = ScatterMeter(module), []
    hook = model.get_submodule(module).register_forward_hook(lambda *call: seen.append(call[2].clone()))
    with torch.inference_mode():
        for images, label in batches():
            model(images)
            meter.add(seen.pop() if after is None else after(seen.pop()), label)
    hook.remove()
    return meter.scatter()


def same(found: Scatter, expected: Scatter) -> None:
    np.testing.assert_allclose(found.between, expected.between, rtol=1e-4)
    np.testing.assert_allclose(found.within, expected.within, rtol=1e-4)


def test_a_feature_map_is_what_the_consumers_read():
    model = randomised(Residual())
    found = FeatureGraph(model, ["stem", "inner", "outer", "wide"]).scatters(batches())
    same(found["stem"], by_hook(model, "bn", nn.ReLU()))
    same(found["inner"], by_hook(model, "inner_bn", nn.ReLU()))
    same(found["outer"], by_hook(model, "outer"))  # an addition follows, which reads another layer too
    same(found["wide"], by_hook(model, "wide"))


def test_nan_in_a_feature_map_names_the_layer():
    model = randomised(Residual())
    model.inner.bias.data[2] = float("nan")
    with pytest.raises(NumericsError, match="inner"):
        FeatureGraph(model, ["stem", "inner"]).scatters(batches())


def test_what_is_called_whole_hides_its_layers():
    model = randomised(Between(ByCount()))
    graph = FeatureGraph(model, ["stem", "block.1.conv", "last"])
    assert list(graph.hidden) == ["block.1.conv"]
    assert graph.hidden["block.1.conv"].startswith("block.1 is not traced")
    found = graph.scatters(batches())
    assert set(found) == {"stem", "last"}
    same(found["last"], by_hook(model, "last", nn.ReLU()))


def test_all_calls_of_a_shared_layer_count():
    model = randomised(Shared())
    early, late, seen = ScatterMeter("early"), ScatterMeter("late"), []
    hook = model.norm.register_forward_hook(lambda *call: seen.append(torch.relu(call[2])))
    with torch.inference_mode():
        for images, label in batches():
            seen.clear()
            model(images)
            early.add(seen[0], label)
            late.add(seen[1], label)
    hook.remove()
    first, second = early.scatter(), late.scatter()
    expected = Scatter(first.between + second.between, first.within + second.within)
    same(FeatureGraph(model, ["same"]).scatters(batches())["same"], expected)


class Writing(nn.Module):
    """The output of each convolution is read in a different way."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("read", "added", "overwritten", "summed_into", "viewed", "last"):
            self.add_module(name, nn.Conv2d(3, 3, 1))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.overwritten(self.read(x))
        x = self.act(x)
        total = self.summed_into(x)
        total.add_(x)
        return self.last(self.viewed(total).flatten(2).unflatten(2, (8, 8)) + self.added(x))


@pytest.mark.parametrize(
    ("name", "only_read"),
    [("read", True), ("added", True), ("overwritten", False), ("summed_into", False), ("viewed", False)],
)
def test_what_surely_stays_as_it_is(name, only_read):
    graph = FeatureGraph(Writing().eval(), ["last"])
    (call,) = graph.module.graph.find_nodes(op="call_module", target=name)
    assert graph.is_only_read(call) == only_read


def test_a_hook_may_do_anything():
    model = Writing().eval()
    model.overwritten.register_forward_hook(lambda *call: call[1][0].zero_())
    graph = FeatureGraph(model, ["last"])
    (call,) = graph.module.graph.find_nodes(op="call_module", target="read")
    assert not graph.is_only_read(call)


@pytest.mark.parametrize(
    ("size", "most", "threads", "expected"),
    [
        (16, 128, 1, 128),  # all maps fit
        (256, 128, 1, 8),  # 8 channels of 256 x 256 in float32 are 2 MiB
        (1024, 128, 1, FEWEST_IMAGES),
        (1024, 128, 32, 32),
        (1024, 2, 32, 2),
    ],
)
def test_so_many_images_run_at_once_that_their_maps_fit_the_cache(monkeypatch, size, most, threads, expected):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2))
    assert images_at_once(network, (3, size, size), most) == expected


def test_the_scatter_does_not_depend_on_how_many_images_run_at_once():
    graph = FeatureGraph(randomised(Residual()), ["stem", "inner", "outer", "wide"])
    pieces = [(piece, label) for images, label in batches() for piece in images.split(1)]
    whole, split = graph.scatters(batches()), graph.scatters(pieces)
    for name, expected in whole.items():
        same(split[name], expected)
