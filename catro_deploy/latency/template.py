"""Networks of other widths, cut from one ONNX export: in milliseconds each, whereas an export takes seconds."""

import copy
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy.errors import ModelError, NumericsError
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, spread
from catro_deploy.graph.onnx.export import check_agreement, export_onnx
from catro_deploy.graph.onnx.skeleton import Skeleton
from catro_deploy.models.plain import write_out_weights_
from catro_deploy.records import Keep

__all__ = ["Template", "Widths", "exported_skeleton", "keeps_at", "template_of", "trials", "weights_of", "with_noise"]

Widths = Mapping[str, int]
"""Channels of each group."""

# Noise on the weights, as a share of their mean size, so that no two are equal and none is 0.
NOISE = 0.01
# Shares of each group's channels, at least LEAST of them, that are tried to check if all shapes are known.
TRIED, LEAST = (0.5, 0.0), 3


@dataclass(frozen=True)
class Template:
    """The exported ``network`` at full width."""

    network: Network
    skeleton: Skeleton

    def at(self, widths: Widths) -> Any:  # noqa: ANN401 - onnx.ModelProto
        """The network with ``widths``, with evenly spaced channels of each group.

        Raises:
            ModelError: a layer would be left without channels.
        """
        return self.skeleton.cut(keeps_at(self.network, widths))


def template_of(model: nn.Module, network: Network, opset: int, *, dynamic_batch: bool) -> Template | None:
    """A template of ``model`` (eval mode, CPU), traced as ``network``.

    None if it cannot be exported, or if what is cut from the export is not what is exported of a cut network.
    """
    noisy = with_noise(model)
    try:
        skeleton = exported_skeleton(noisy, network, opset, dynamic_batch=dynamic_batch)
        for widths in trials(network):
            keeps = keeps_at(network, widths)
            _require_equal(skeleton.cut(keeps), apply_keeps_(copy.deepcopy(noisy), keeps), network.input_shape)
    except (ModelError, NumericsError, RuntimeError):  # the last from a forward that fails at these widths
        return None
    return Template(network, skeleton)


def _require_equal(proto: Any, model: nn.Module, input_shape: tuple[int, int, int]) -> None:  # noqa: ANN401
    import onnx

    images = torch.randn((1, *input_shape), generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory(prefix="catro-deploy-") as folder:
        file = Path(folder) / "cut.onnx"
        onnx.save(proto, file)
        check_agreement(model, images, file, file.name)


def exported_skeleton(noisy: nn.Module, network: Network, opset: int, *, dynamic_batch: bool) -> Skeleton:
    """The graph of an export of ``noisy`` (eval mode, CPU; ``with_noise``), traced as ``network``.

    Raises:
        ModelError: it cannot be exported.
    """
    import onnx

    with tempfile.TemporaryDirectory(prefix="catro-deploy-") as folder:
        file = Path(folder) / "exported.onnx"
        export_onnx(noisy, network.input_shape, file, opset=opset, dynamic_batch=dynamic_batch, metadata={})
        return Skeleton(onnx.load(file), network.sizes, weights_of(noisy, [layer.name for layer in network.layers]))


def trials(network: Network) -> Iterator[dict[str, int]]:
    """Widths at which a skeleton of ``network`` is tried."""
    free = [group for group in network.groups if not group.fixed]
    for share in TRIED:
        yield {group.name: max(min(LEAST, group.width), int(share * group.width)) for group in free}


def keeps_at(network: Network, widths: Widths) -> dict[str, Keep]:
    """The channels that modules keep when groups have these widths; those without one keep all."""
    kept = {group.name: spread(group, widths[group.name]) for group in network.groups if group.name in widths}
    return keeps_of(network.groups, kept, network.sizes)


def with_noise(model: nn.Module) -> nn.Module:
    """A copy with a little noise on its weights: the exporter drops zeros and merges equal weights.

    Computed weights become plain ones, as the export makes them, but keep their names. Each module gets its own copy of
    shared weights, since the export would merge them.
    """
    copied = write_out_weights_(copy.deepcopy(model))
    seen: set[nn.Parameter] = set()
    for module in copied.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter in seen:
                setattr(module, name, nn.Parameter(parameter.detach().clone()))
            seen.add(parameter)
    generator = torch.Generator().manual_seed(0)
    for tensor in (*copied.parameters(), *copied.buffers()):
        if tensor.is_floating_point():
            size = max(float(tensor.detach().abs().mean()), NOISE) if tensor.numel() else 0.0
            tensor.data.add_(torch.rand(tensor.shape, generator=generator), alpha=NOISE * size)
    return copied


def weights_of(model: nn.Module, layers: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The weight of each of ``layers``, named after its module or, for a functional layer, after the weight."""
    modules = dict(model.named_modules())
    tensors = {name: f"{name}.weight" if name in modules else name for name in layers}
    return {name: model.get_parameter(tensor).detach().numpy() for name, tensor in tensors.items()}
