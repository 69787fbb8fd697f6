"""Published latencies to compare the roofline with; nothing is tuned on them."""

from dataclasses import dataclass
from functools import cache

from torch import nn
from torchvision.models import mobilenet_v2, resnet50

from benchmarks.roofline.fit import Figures
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.latency.kernels import Gpu
from catro_deploy.latency.roofline import RooflineCost
from catro_deploy.targets import load_target

__all__ = ["ROWS", "Published", "estimate_ms"]


@dataclass(frozen=True)
class Published:
    """A published mean latency at 224x224. ``figures`` names the target whose GPU represents the system."""

    network: str
    system: str
    precision: str
    batch: int
    ms: float
    figures: str


XAVIER = "AGX Xavier: 8 SMs at 1377 MHz, 136.5 GB/s, 0.5 MiB of L2 (from memory)"
MAXQ = "jetson-agx-orin-64gb-50w (the clocks of that run are not known here)"
# NVIDIA's results of MLPerf inference, closed division; and TensorRT 8.4 by trtexec.
ROWS = (
    Published("ResNet-50", "AGX Orin 64GB, TensorRT 8.5.2, MLPerf", "int8", 1, 0.636, "jetson-agx-orin-64gb-maxn"),
    Published("ResNet-50", "AGX Orin 64GB, TensorRT 8.5.2, MLPerf", "int8", 8, 2.164, "jetson-agx-orin-64gb-maxn"),
    Published("ResNet-50", "AGX Orin MaxQ, MLPerf", "int8", 1, 1.479, MAXQ),
    Published("ResNet-50", "Orin NX 16GB, TensorRT 8.5.2, MLPerf", "int8", 1, 1.085, "jetson-orin-nx-16gb-maxn"),
    Published("ResNet-50", "Orin NX 16GB, TensorRT 8.5.2, MLPerf", "int8", 8, 5.043, "jetson-orin-nx-16gb-maxn"),
    Published("ResNet-50", "L4, TensorRT 8.6, MLPerf", "int8", 1, 0.356, "x86-gpu-l4"),
    Published("ResNet-50", "L4, TensorRT 8.6, MLPerf", "int8", 8, 0.799, "x86-gpu-l4"),
    Published("ResNet-50", "A100 PCIe 80GB, MLPerf", "int8", 1, 0.471, "x86-gpu-a100"),
    Published("ResNet-50", "T4, MLPerf", "int8", 1, 1.000, "x86-gpu-t4"),
    Published("ResNet-50", "AGX Xavier, MLPerf", "int8", 1, 2.115, XAVIER),
    Published("ResNet-50", "Xavier NX, MLPerf", "int8", 1, 3.196, "jetson-xavier-nx"),
    Published("ResNet-50", "A100, TensorRT 8.4, trtexec", "fp32", 1, 1.96, "x86-gpu-a100"),
    Published("ResNet-50", "A100, TensorRT 8.4, trtexec", "int8", 1, 0.46, "x86-gpu-a100"),
    Published("MobileNet-v1", "A100, TensorRT 8.4, trtexec", "fp32", 1, 0.32, "x86-gpu-a100"),
    Published("MobileNet-v1", "A100, TensorRT 8.4, trtexec", "int8", 1, 0.16, "x86-gpu-a100"),
    Published("MobileNet-v2", "A100, TensorRT 8.4, trtexec", "fp32", 1, 0.55, "x86-gpu-a100"),
    Published("MobileNet-v2", "A100, TensorRT 8.4, trtexec", "int8", 1, 0.30, "x86-gpu-a100"),
)


def estimate_ms(row: Published) -> float:
    """The roofline's estimate in milliseconds."""
    network = traced(row.network)
    cost = RooflineCost(network.layers, network.groups, gpu_of(row.figures), row.precision, row.batch)
    return cost.predict({group.name: group.width for group in network.groups}) / 1e3


def gpu_of(figures: str) -> Gpu:
    """The GPU of a target, or that of AGX Xavier, which has no target."""
    if figures == XAVIER:
        return Figures(8, 1377, 128, 1024, 2048, 136.5, 0.5)
    gpu = load_target(figures.partition(" ")[0]).gpu
    assert gpu is not None
    return gpu


@cache
def traced(name: str) -> Network:
    """A network's layers and groups at 224x224."""
    models = {
        "ResNet-50": lambda: resnet50(weights=None),
        "MobileNet-v1": mobilenet_v1,
        "MobileNet-v2": lambda: mobilenet_v2(weights=None),
    }
    return trace(models[name](), (3, 224, 224))


def mobilenet_v1() -> nn.Module:
    """Howard et al., arXiv:1704.04861, table 1; normalisation and activation cost nothing here and are left out."""
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1)]
    width = 32
    for out, stride in blocks:
        layers += [nn.Conv2d(width, width, 3, stride, 1, groups=width), nn.Conv2d(width, out, 1)]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
