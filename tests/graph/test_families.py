"""Every CNN family of torchvision and timm is traced: the graph computes the same and contains all layers."""

import pytest
import torch

from catro_deploy.graph.coupling.layers import list_layers
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.graph.fx.features import FeatureGraph
from catro_deploy.models import build_model

TORCHVISION = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3",
    "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50",
    "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1", "vgg11", "vgg11_bn", "wide_resnet50_2",
)  # fmt: skip
TIMM = (
    "cspresnet50", "densenet121", "dla46_c", "dpn48b", "ecaresnet26t", "eca_nfnet_l0", "efficientnet_b0", "fbnetc_100",
    "ghostnet_050", "hrnet_w18_small", "inception_v3", "lcnet_035", "mnasnet_small", "mobilenetv2_035",
    "mobilenetv3_small_050", "mobilenetv4_conv_small_035", "regnetx_002", "repvgg_a0", "res2net50_14w_8s", "resnet10t",
    "resnext26ts", "seresnet18", "skresnet18", "tf_efficientnet_b0", "tinynet_e", "vgg11", "convnext_atto",
    "legacy_xception", "xception41",
)  # fmt: skip
LARGER = ("inception_v3", "legacy_xception", "xception41")
HIDDEN = {"timm:vgg11": {"pre_logits.fc1", "pre_logits.fc2"}}
"""Layers inside modules that cannot be traced: timm's VGG enlarges small maps."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(f"torchvision:{n}" for n in TORCHVISION), *(f"timm:{n}" for n in TIMM)])
def test_graphs_of_all_families(name):
    model, size = build_model(name, 10), 96 if name.endswith(LARGER) else 64
    layers = [layer.name for layer in list_layers(model, (3, size, size))]
    graph = FeatureGraph(model, layers)
    assert set(graph.hidden) == HIDDEN.get(name, set())
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, found = model(images), graph.module(images)
    assert (expected - found).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timm:resnet10t", "timm:mobilenetv2_035", "timm:repvgg_a0"])
def test_branches_of_timm(name):
    model = build_model(name, 10)
    branches = find_branches(model, trace(model, (3, 64, 64)))
    assert bool(branches) == (name != "timm:repvgg_a0")  # each operand of its sums is one convolution
