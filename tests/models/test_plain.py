"""Computed weights replaced by plain ones: the network computes the same, and its channels can be pruned."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.optim.swa_utils import AveragedModel

import catro_deploy
from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.models.plain import copied, unwrapped, write_out_weights_

LAYERS = ("stem", "body", "last", "fc")


class Normed(nn.Module):
    """By default four classes; a convolution with weight norm, used twice, and one with spectral norm."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.body = parametrizations.weight_norm(nn.Conv2d(12, 12, 3, padding=1))
        self.last = parametrizations.spectral_norm(nn.Conv2d(12, 16, 3, padding=1))
        self.fc = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.last(torch.relu(self.body(self.body(x)))))
        return self.fc(x.mean((2, 3)))


class Hooked(Normed):
    """The same by hooks, as before parametrisations; the weights have a history, as after training."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__(classes)
        with pytest.warns(FutureWarning, match="weight_norm"):
            self.body = nn.utils.weight_norm(nn.Conv2d(12, 12, 3, padding=1))
        self.last = nn.utils.spectral_norm(nn.Conv2d(12, 16, 3, padding=1))
        nn.utils.prune.l1_unstructured(self.stem, "weight", amount=0.5)
        self(torch.randn(2, 3, 8, 8))


def same(model: nn.Module, images: torch.Tensor) -> None:
    with torch.inference_mode():
        expected = model(images)
        found = write_out_weights_(copied(model))(images)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["StdConv2d", "StdConv2dSame", "ScaledStdConv2d", "ScaledStdConv2dSame"])
@pytest.mark.parametrize(("stride", "groups", "bias"), [(1, 1, True), (2, 2, False)])
def test_standardised_convolutions_of_timm(kind, stride, groups, bias):
    layers = pytest.importorskip("timm.layers.std_conv")
    torch.manual_seed(0)
    conv = getattr(layers, kind)(6, 8, 3, stride=stride, groups=groups, bias=bias).eval()
    if hasattr(conv, "gain"):
        nn.init.uniform_(conv.gain)
    model = nn.Sequential(conv, nn.ReLU(), nn.Conv2d(8, 4, 1))
    same(model, torch.randn(2, 6, 9, 9))
    plain = write_out_weights_(model)[0]
    assert "StdConv" not in type(plain).__name__
    assert "gain" not in plain.state_dict()


def test_a_module_that_is_used_twice_stays_one():
    layers = pytest.importorskip("timm.layers.std_conv")
    conv = layers.ScaledStdConv2d(4, 4, 3)
    model = write_out_weights_(nn.Sequential(conv, nn.ReLU(), conv).eval())
    assert model[0] is model[2]
    assert type(model[0]) is nn.Conv2d


def test_parametrisations():
    torch.manual_seed(0)
    model = Normed().eval()
    same(model, torch.randn(2, 3, 8, 8))
    plain = write_out_weights_(copy.deepcopy(model))
    assert not any(parametrize.is_parametrized(module) for module in plain.modules())
    assert parametrize.is_parametrized(model.body)


def test_all_channels_of_a_normaliser_free_network_may_go():
    pytest.importorskip("timm")
    model = catro_deploy.models.build_model("timm:nf_regnet_b0", 4)
    reasons = {group.fixed for group in trace(write_out_weights_(model), (3, 32, 32)).groups if group.fixed}
    assert reasons == {"the logits"}


def test_hooks():
    torch.manual_seed(0)
    model = Hooked().eval()
    same(model, torch.randn(2, 3, 8, 8))
    plain = write_out_weights_(copied(model))
    assert plain.state_dict().keys() == {f"{name}.{kind}" for name in LAYERS for kind in ("weight", "bias")}
    assert (plain.stem.weight == 0).float().mean() == 0.5
    assert not any(module._forward_pre_hooks for module in plain.modules())
    assert model.body._forward_pre_hooks


@pytest.mark.parametrize("network", [Normed, Hooked])
def test_a_network_with_computed_weights_is_pruned_saved_and_loaded(tmp_path, network):
    torch.manual_seed(0)
    model = network().eval()
    images, labels = torch.randn(16, 3, 8, 8), torch.arange(16) % 4
    pruned = catro_deploy.prune(model, [(images, labels)], budget="50%flops", compute="cpu")
    assert {"stem", "body", "last"} & set(pruned.plan.keeps)
    again = catro_deploy.load(pruned.save(tmp_path), model=network)
    with torch.inference_mode():
        assert torch.equal(again(images), pruned.model(images))
        torch.testing.assert_close(pruned.original(images), model(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", [1, None, "SAME"])
def test_standardised_convolutions_of_transformers(padding):
    bit = pytest.importorskip("transformers.models.bit.modeling_bit")
    torch.manual_seed(0)
    conv = bit.WeightStandardizedConv2d(6, 8, 3, stride=2, padding=padding, bias=True).eval()
    model = nn.Sequential(conv, nn.ReLU(), nn.Conv2d(8, 4, 1))
    same(model, torch.randn(2, 6, 9, 9))
    assert (type(write_out_weights_(model)[0]) is nn.Conv2d) == (conv.pad is None)


@pytest.mark.parametrize(
    "wrap",
    [
        nn.DataParallel,
        torch.compile,
        lambda model: torch.compile(nn.DataParallel(model)),
        lambda model: nn.DataParallel(torch.compile(model)),
        lambda model: AveragedModel(nn.DataParallel(model)),
    ],
)
def test_wrappers_are_removed_in_any_order(wrap):
    model = Normed()
    assert type(unwrapped(wrap(model))) is Normed
    assert unwrapped(model) is model


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
def test_a_part_in_torchscript_is_named():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), torch.jit.script(nn.Conv2d(4, 4, 1)))
    with pytest.raises(ModelError, match="1 in the model is a TorchScript module"):
        unwrapped(nn.DataParallel(model))
