"""Reconstruction: after a cut, all layers whose input changed are solved to reproduce the original's feature maps.

The original and the cut network run side by side. In execution order, each layer (or each sum of layers, see steps.py)
is solved by ridge regression, from its input in the cut network to the original's output there. This follows He et al.
(2017, "Channel Pruning for Accelerating Very Deep Neural Networks") and Luo et al. (2017, "ThiNet"), but works on any
traced graph, solves sums jointly and takes the errors of earlier layers into account.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from catro_deploy.graph.cut.kinds import is_transposed
from catro_deploy.graph.fx.activations import Activations, MemoryLimit
from catro_deploy.progress import Progress, Silent
from catro_deploy.reconstruction.graphs import CutGraph, OriginalGraph
from catro_deploy.reconstruction.images import image_count
from catro_deploy.reconstruction.rows import Solvable, layer_of
from catro_deploy.reconstruction.solve import LayerFit, StepSolver
from catro_deploy.reconstruction.steps import Step, steps_of
from catro_deploy.reconstruction.walk import Walk

__all__ = ["Reconstruction", "reconstruct_", "write_back_"]

LEAST_NORM = 0.25
"""Minimum norm of a solved filter, as a share of the mean norm of its layer's filters."""

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


@dataclass(frozen=True)
class Reconstruction:
    """How each layer was solved, by name and in order; and why other layers that changed were left unsolved."""

    fits: Mapping[str, LayerFit]
    left: Mapping[str, str]


def reconstruct_(
    original: OriginalGraph,
    cut: CutGraph,
    images: Sequence[torch.Tensor],
    limit: MemoryLimit,
    progress: Progress | None = None,
    *,
    steps: Sequence[Step] | None = None,
    known: Mapping[str, Activations] | None = None,
    seed: int = 0,
) -> Reconstruction:
    """Solve the layers of ``cut`` in place; only those of ``steps``, if given.

    ``images`` are normalised batches (n, channels, height, width), without labels, on the device of both graphs.
    ``known`` are values of nodes, by name, that are the same in both graphs.
    """
    all_steps, left = steps_of(original, cut)
    steps = all_steps if steps is None else steps
    nodes = {node.name: node for node in original.module.graph.nodes}
    generator = torch.Generator().manual_seed(seed)
    here = Walk(cut.module, [step.needed for step in steps], images, limit, known)
    there = Walk(original.module, [(nodes[step.target],) for step in steps], images, limit, known)
    count = image_count(images)
    fits: dict[str, LayerFit] = {}
    with (progress or Silent()).task("Reconstructing layers", len(steps)) as task, torch.inference_mode():
        for place, step in enumerate(steps):
            layers = [layer_of(cut.module, str(node.target)) for node in step.layers]
            positions = original.shapes[step.layers[0].name][2:].numel()
            keep = cut.keeps.get(str(step.layers[0].target))
            solver = StepSolver(layers, positions, count, generator, None if keep is None else keep.out)
            for values, (target,) in zip(here.values(place), map(dict.values, there.values(place)), strict=True):
                inputs, given = ([values[node] for node in nodes] for nodes in (step.inputs, step.given))
                solver.add(inputs, target, given)
            fits |= dict(zip((str(node.target) for node in step.layers), solver.solve_(), strict=True))
            task.advance()
    here.close()
    there.close()
    return Reconstruction(fits, left)


def write_back_(model: nn.Module, original: OriginalGraph, cut: CutGraph, found: Reconstruction) -> None:
    """Copy the weights that were ``found`` to ``model``, which is cut like ``cut``, and unfold normalisation.

    A convolution and its normalisation then compute what the folded convolution does, also in training mode: filters
    keep their norms, and the normalisation gets the statistics of their outputs.
    """
    with torch.no_grad():
        for name, fit in found.fits.items():
            solved, layer = layer_of(cut.module, name), layer_of(model, name)
            if name in original.norms:
                _unfold_(layer, model.get_submodule(original.norms[name]), solved, fit)
                continue
            layer.weight.copy_(solved.weight)
            if layer.bias is not None and solved.bias is not None:
                layer.bias.copy_(solved.bias)


def _unfold_(layer: Solvable, norm: nn.Module, solved: Solvable, fit: LayerFit) -> None:
    assert isinstance(norm, BatchNorm)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert solved.bias is not None
    axis, device = 1 if is_transposed(layer) else 0, layer.weight.device
    weight, offset = solved.weight.to(device), solved.bias.to(device).double()
    old, new = (one.movedim(axis, 0).flatten(1).double().norm(dim=1) for one in (layer.weight, weight))
    # A dead filter has a norm near zero, at which any training step would be huge.
    wanted = old.clamp(min=float(old.mean()) * LEAST_NORM)
    scale = torch.where((wanted > 0) & (new > 0), new / wanted.clamp(min=1e-30), torch.ones_like(new))
    shape = [1] * weight.ndim
    shape[axis] = -1
    layer.weight.copy_(weight / scale.view(shape).to(weight.dtype))
    bias = torch.zeros_like(scale) if layer.bias is None else layer.bias.double()
    mean, variance = fit.mean.to(device) / scale + bias, fit.variance.to(device) / scale.square()
    gain = scale * (variance + norm.eps).sqrt()
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    if norm.weight is not None and norm.bias is not None:
        norm.weight.copy_(gain)
        norm.bias.copy_(offset + scale * (mean - bias))
