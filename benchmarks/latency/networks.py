"""The networks of the latency benchmarks, and a loop that measures those missing in a result."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.common import read_result, write_result
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.models import build_model
from catro_deploy.pruning.cutting import of_widths

__all__ = ["NETWORKS", "halved", "measured_networks", "untrained"]

# Network -> height and width of its images.
NETWORKS = {"cifar_resnet20": 32, "torchvision:mobilenet_v2": 96, "torchvision:resnet50": 224}
CLASSES = 10


def untrained(name: str) -> nn.Module:
    """The network with random weights and biases; if biases were zero, an exporter would omit their additions."""
    torch.manual_seed(0)
    model = build_model(name, CLASSES).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.bias, std=0.1)
    return model


def halved(model: nn.Module, shape: tuple[int, int, int]) -> nn.Module:
    """A network like ``model`` with half as many channels wherever they can be pruned."""
    network = trace(model, shape)
    half = {group.name: group.width if group.fixed else max(1, group.width // 2) for group in network.groups}
    return of_widths(model, network, (), half)


def measured_networks(
    result: str, names: Sequence[str], measure: Callable[[str], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The networks in the file ``result``, after measuring those of ``names`` that it lacks."""
    networks: dict[str, dict[str, Any]] = read_result(result).get("networks", {})
    for name in names:
        if name not in networks:
            print(f"{name} ...", file=sys.stderr, flush=True)
            networks[name] = measure(name)
            networks = {known: networks[known] for known in NETWORKS if known in networks}
            write_result(result, {"networks": networks})
    return networks
