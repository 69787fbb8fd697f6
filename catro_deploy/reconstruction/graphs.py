"""The original and the cut network as graphs with the same node names, normalisation folded away."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from catro_deploy.graph.cut.sizes import stored_sizes
from catro_deploy.graph.cut.surgery import apply_keeps_
from catro_deploy.graph.fx.depth import cut_branches_
from catro_deploy.graph.fx.folding import fold_batch_norm_
from catro_deploy.graph.fx.lowering import lower_layers_
from catro_deploy.graph.tracing.symbolic import evaluation_graph
from catro_deploy.records import Keep

__all__ = ["CutGraph", "OriginalGraph"]


@dataclass(frozen=True)
class OriginalGraph:
    """The unpruned network in eval mode.

    Attributes:
        module: its graph module, lowered to plain layers, with normalisation folded into convolutions.
        norms: each convolution with a folded normalisation, and the name of that normalisation.
        shapes: shape of each node's output for one image, by the node's name.
        opaque: modules that the graph calls without tracing into them, each with the reason.
    """

    module: fx.GraphModule
    norms: Mapping[str, str]
    shapes: Mapping[str, torch.Size]
    opaque: Mapping[str, str]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        input_shape: tuple[int, int, int],
        ignore: Sequence[str] = (),
        sizes: Collection[str] = (),
    ) -> "OriginalGraph":
        """Trace a copy of ``model``, but not into ``ignore``; the numbers named ``sizes`` may change with a cut.

        Raises:
            ModelError: the forward cannot be traced.
        """
        present = dict(model.named_modules())
        traced = evaluation_graph(model, [name for name in ignore if name in present], sizes, input_shape)
        lower_layers_(traced.module, input_shape)
        norms = fold_batch_norm_(traced.module)
        device = next(model.parameters()).device
        with torch.no_grad():
            ShapeProp(traced.module).propagate(torch.zeros(1, *input_shape, device=device))
        metas = {node.name: node.meta.get("tensor_meta") for node in traced.module.graph.nodes}
        shapes = {name: meta.shape for name, meta in metas.items() if hasattr(meta, "shape")}
        return cls(traced.module, norms, shapes, traced.opaque)

    def cut(self, keeps: Mapping[str, Keep], dropped: Sequence[str] = ()) -> "CutGraph":
        """A copy cut by ``keeps``, without the residual branches ``dropped``.

        Raises:
            ModelError: the graph has no such branch, or the keeps do not fit the network.
        """
        module = copy.deepcopy(self.module)
        stand_ins = cut_branches_(module.graph, dropped, dict(module.named_modules()))
        module.delete_all_unused_submodules()
        module.recompile()
        there = {name for name, _ in (*module.named_modules(), *module.named_parameters(), *module.named_buffers())}
        there |= stored_sizes(module, keeps).keys()
        apply_keeps_(module, {name: keep for name, keep in keeps.items() if name in there})
        return CutGraph(module, dict(keeps), {node.name: addition for node, addition in stand_ins.items()})


@dataclass(frozen=True)
class CutGraph:
    """The cut network; nodes have the same names as in the original's graph.

    Attributes:
        module: its graph module.
        keeps: what each module keeps of the original's channels.
        stand_ins: nodes that replace an addition whose branch is removed, each with that addition's name.
    """

    module: fx.GraphModule
    keeps: Mapping[str, Keep]
    stand_ins: Mapping[str, str]
