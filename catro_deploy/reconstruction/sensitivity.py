"""Which errors of a layer's outputs change the output: those that change differences of the wanted classes' logits.

For random differences v between logits, g = J'v is the direction of a layer's output that they depend on; the mean of
g g' weights the squared error of a reconstruction by its effect on those differences. It is the output side of K-FAC
(Martens and Grosse, 2015, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature"), for differences
of logits instead of a loss, so that no labels are needed; logits of classes that are not wanted do not count.
"""

import sys
from collections.abc import Collection, Sequence
from typing import cast

import torch
from torch import fx

from catro_deploy.progress import Progress
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.rows import layer_of, outputs_at, positions_of, weight_matrix
from catro_deploy.reconstruction.solve import POSITIONS

__all__ = ["logit_directions", "square_root"]

MAPS_BYTES = 2**29
"""Bytes of feature maps and their gradients that are held at a time."""
EPSILON = 1e-6
"""Weight added to every direction, as a share of the matrix's norm, so that a square root exists."""


def logit_directions(
    original: OriginalGraph,
    layers: Collection[str],
    images: Sequence[torch.Tensor],
    progress: Progress,
    seed: int = 0,
) -> dict[str, torch.Tensor]:
    """For each layer a matrix R (outputs, outputs), float64: errors e of its outputs count as |R'e|^2.

    Takes one forward and backward pass over ``images``, normalised batches (n, channels, height, width). Of large maps,
    the gradients at some positions stand for those at all.
    """
    module, generator = original.module, torch.Generator().manual_seed(seed)
    places = torch.Generator().manual_seed(seed)
    order = list(module.graph.nodes)
    watched = {node for node in order if node.op == "call_module" and str(node.target) in layers}
    found: dict[str, torch.Tensor] = {}

    def watch(name: str, output: torch.Tensor) -> None:
        layer = layer_of(module, name)
        positions = positions_of(layer, output.shape, POSITIONS, places)

        def add(gradient: torch.Tensor) -> None:
            rows = outputs_at(layer, gradient, positions).movedim(0, 1).flatten(1)
            share = rows.numel() / gradient.numel()
            found[name] = found.get(name, 0) + (rows.mT @ rows).double() / share

        output.register_hook(add)  # type: ignore[no-untyped-call]

    map_bytes = sum(shape.numel() for shape in original.shapes.values()) * images[0].element_size()
    parts = [part for batch in images for part in torch.split(batch, max(1, MAPS_BYTES // (2 * map_bytes)))]
    with progress.task("Computing gradients of the logits", len(parts)) as task, torch.enable_grad():
        for part in parts:
            interpreter = fx.Interpreter(module)
            # With channels last, oneDNN's gradient of narrow strided convolutions is wrong: see training/striding.py.
            image = part.clone(memory_format=torch.contiguous_format).requires_grad_()
            interpreter.env = {order[0]: image}
            for node in order[1:-1]:
                interpreter.env[node] = output = interpreter.run_node(node)
                if node in watched:
                    watch(str(node.target), output)
            logits = interpreter.env[order[-1].args[0]]
            draw = torch.randn(logits.shape, generator=generator).to(logits.device)
            # Only the images need gradients: backpropagation to them passes all layers. Its first step is a product:
            # autograd's thread for a GPU has no CUDA context before its first kernel, and cuBLAS would warn about that.
            torch.autograd.grad((logits * (draw - draw.mean(1, keepdim=True))).sum(), image)
            task.advance()
    # Each matrix is freed once its root is known.
    return {name: square_root(found.pop(name)) if name in found else _nothing(module, name) for name in layers}


def _nothing(module: fx.GraphModule, name: str) -> torch.Tensor:
    """The zero matrix of a layer that the logits do not depend on."""
    weights = weight_matrix(layer_of(module, name))
    return weights.new_zeros(weights.shape[2], weights.shape[2], dtype=torch.float64)


def square_root(matrix: torch.Tensor) -> torch.Tensor:
    """R with R R' equal to a symmetric ``matrix`` (n, n) whose eigenvalues are raised to be above 0.

    Computed by Cholesky factorisation, or by eigenvectors, which take longer, where rounding left a negative eigenvalue
    beyond EPSILON, as in sums of products in float32.
    """
    least = max(EPSILON * float(torch.linalg.matrix_norm(matrix)), sys.float_info.min)
    root, failed = torch.linalg.cholesky_ex(matrix + least * torch.eye(len(matrix)).to(matrix))
    if not failed:
        return cast(torch.Tensor, root)
    values, vectors = torch.linalg.eigh(matrix)
    return cast(torch.Tensor, vectors * values.clamp(min=least).sqrt())
