"""ResNets written down for GPUs: the same layers, groups and functions as torchvision's."""

import numpy as np
import pytest
import torch
from gpu_device import CpuDevice
from gpu_network import Case, FoldedResNet, Fusion
from gpu_resnet import RESNET50, TINY, ResNet
from torchvision.models.resnet import Bottleneck
from torchvision.models.resnet import ResNet as TorchvisionResNet

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.fx.depth import drop_branches, find_branches

SMALL = ResNet((1, 2), 64, 32, 10)


def torchvision_resnet() -> TorchvisionResNet:
    """``SMALL`` as torchvision builds it: four stages, of which the last two are taken out."""
    model = TorchvisionResNet(Bottleneck, [1, 2, 1, 1], num_classes=10)
    model.layer3, model.layer4 = torch.nn.Identity(), torch.nn.Identity()
    model.fc = torch.nn.Linear(512, 10)
    return model.eval()


def load_(model: torch.nn.Module, folded: FoldedResNet) -> None:
    """Give ``model`` the folded weights: BatchNorm does nothing but add the bias."""
    modules = dict(model.named_modules())
    for name, (weight, bias) in folded.parameters.items():
        modules[name].weight.data = weight
        if name == "fc":
            modules[name].bias.data = bias
            continue
        norm = modules[name.replace("conv", "bn") if "conv" in name else name.replace("downsample.0", "downsample.1")]
        norm.weight.data = torch.full_like(bias, (1 + norm.eps) ** 0.5)
        # A projection beside a convolution has no bias of its own.
        alone = folded.cases[name].step.operators != ("Conv",)
        norm.bias.data = bias if alone else torch.zeros_like(bias)


def test_what_is_written_down_is_what_tracing_finds():
    model = torchvision_resnet()
    network = trace(model, (3, 32, 32))
    assert SMALL.layers == sorted(
        network.layers, key=lambda layer: [step.name for step in SMALL.steps].index(layer.name)
    )
    layers = {layer.name for layer in network.layers}
    expected = {
        group.name: (group.width, group.producers, {(s.module, s.axis) for s in group.slots if s.module in layers})
        for group in network.groups
        if not group.fixed
    }
    assert expected == {
        group.name: (group.width, group.producers, {(slot.module, slot.axis) for slot in group.slots})
        for group in SMALL.groups
    }
    assert {branch.groups for branch in SMALL.branches} == {b.groups for b in find_branches(model, network)}


def test_resnet50_has_its_known_size():
    """He et al. (2015) count 3.8e9 multiply-adds with the stride in the first 1x1; in the 3x3 they are 4.09e9."""
    assert len(RESNET50.steps) == 54
    assert RESNET50.macs(RESNET50.widths) == pytest.approx(4.09e9, rel=0.001)


@pytest.mark.parametrize("gone", [[], ["layer2.1"], ["layer1.0", "layer2.0"]])
def test_networks_compute_what_torchvision_computes(gone):
    """At full width, narrower, and without blocks: of an identity, of a projection."""
    model, generator = torchvision_resnet(), np.random.default_rng(0)
    network = trace(model, (3, 32, 32))
    widths = {name: int(generator.integers(3, width + 1)) for name, width in SMALL.widths.items()}
    apply_keeps_(model, keeps_of(network.groups, {name: range(w) for name, w in widths.items()}, network.sizes))
    widths |= {name: 0 for block in gone for name in (f"{block}.conv1", f"{block}.conv2")}
    folded = FoldedResNet(SMALL, widths, 2, CpuDevice(), Fusion())
    branches = {branch.groups[0].removesuffix(".conv1"): branch.name for branch in find_branches(model, network)}
    model = drop_branches(model, [branches[block] for block in gone])
    load_(model, folded)
    with torch.inference_mode():
        assert torch.allclose(folded(), model(folded.images), rtol=1e-3, atol=1e-4)


def test_layers_without_a_fused_kernel_run_plain():
    """On a CPU there is none."""
    fusion = Fusion()
    fusion.otherwise = True
    network = FoldedResNet(TINY, TINY.widths, 1, CpuDevice(), fusion)
    with torch.inference_mode():
        assert torch.equal(network(), network.in_float32())
    assert len(fusion.refused) == len({case.key for case in network.cases.values() if "Relu" in case.step.operators})
    assert not any(fusion.wanted(case) for case in network.cases.values())


def test_kernels_by_hand():
    steps, plain, fused = RESNET50.by_name, Fusion(), Fusion()
    fused.otherwise = True

    def counted(name: str) -> tuple[int, int]:
        case = Case(steps[name], 8, 8, 1)
        return plain.kernels(case), fused.kernels(case)

    assert counted("conv1") == (4, 2)  # convolution, bias, ReLU; pooling
    assert counted("layer1.0.conv2") == (3, 1)
    assert counted("layer1.0.conv3") == (4, 1)
    assert counted("layer1.0.downsample.0") == (1, 1)
    assert counted("fc") == (2, 2)  # mean, product
