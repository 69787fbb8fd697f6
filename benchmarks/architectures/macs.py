"""Multiply-accumulates by the formulas used to choose widths, compared with torch's count when a network runs."""

import copy

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, spread
from catro_deploy.latency.flops import FlopsCost

__all__ = ["compare_macs"]


def compare_macs(model: nn.Module, network: Network) -> dict[str, float]:
    """Compare both for ``model``, which ``network`` describes, and for a copy with half of each prunable group.

    Returns ``macs_layers``, the share of the layers in torch's count (the rest is attention, recurrent layers and
    products of feature maps), and ``macs_excess``, by how much the formulas overcount the halved network: operations
    outside the layers are counted as in the whole network.

    Raises:
        ArithmeticError: the formulas count less than torch, or more for a network without operations outside layers.
    """
    free = [group for group in network.groups if not group.fixed]
    widths = {group.name: max(1, group.width // 2) for group in free}
    kept = {group.name: spread(group, widths[group.name]) for group in free}
    halved = apply_keeps_(copy.deepcopy(model), keeps_of(free, kept, network.sizes))
    counted, counted_half = (_torch_macs(one, network.input_shape) for one in (model, halved))
    of_layers = sum(layer.macs for layer in network.layers)
    formula = round(FlopsCost(network.layers, free, network.other_macs).predict(widths))
    exact = not network.other_macs
    if network.macs != counted or formula < counted_half or (exact and formula != counted_half):
        raise ArithmeticError(
            f"{network.macs:,} and, halved, {formula:,} MACs by the formulas; torch counts {counted:,} and "
            f"{counted_half:,}"
        )
    return {"macs_layers": of_layers / counted, "macs_excess": formula / counted_half - 1}


def _torch_macs(model: nn.Module, input_shape: tuple[int, int, int]) -> int:
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:  # not every release counts attention on CPUs
        model.eval()(torch.zeros(1, *input_shape))
    return int(counter.get_total_flops()) // 2
