"""Normalisation folded into the convolutions before it, as eval mode allows."""

from typing import Any

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from catro_deploy.graph.cut.kinds import groups_of
from catro_deploy.graph.tracing.symbolic import evaluation_graph

__all__ = ["fold_batch_norm_", "folded", "has_hooks"]

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def folded(model: nn.Module) -> fx.GraphModule:
    """A copy of ``model`` in eval mode with fewer operations, equal up to rounding.

    Raises:
        ModelError: the model's own forward cannot be traced.
    """
    module = evaluation_graph(model).module
    fold_batch_norm_(module)
    return module


def fold_batch_norm_(module: fx.GraphModule) -> dict[str, str]:
    """Fold each normalisation that is the only reader of a convolution into it, in place, for a network in eval mode.

    Returns:
        The name of each such convolution, with that of its normalisation, which is no longer in ``module``.
    """
    modules = dict(module.named_modules())
    norms = {}
    for node in list(module.graph.nodes):
        norm: Any = modules.get(str(node.target)) if node.op == "call_module" else None
        # Classes that derive from these may do more: standardise the weight, or activate.
        if type(norm) not in NORMS or norm.running_mean is None or norm.running_var is None:
            continue
        source = node.args[0]
        conv: Any = modules.get(str(source.target)) if source.op == "call_module" else None
        calls = module.graph.find_nodes(op="call_module", target=source.target)
        if _is_foldable(conv) and len(source.users) == len(calls) == 1:
            statistics = norm.running_mean, norm.running_var, norm.eps
            conv.weight, bias = fuse_conv_bn_weights(
                conv.weight, conv.bias, *statistics, norm.weight, norm.bias, transpose=type(conv) in TRANSPOSED
            )
            conv.bias = bias
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
            norms[str(source.target)] = str(node.target)
    module.delete_all_unused_submodules()
    module.recompile()
    return norms


def _is_foldable(conv: nn.Module | None) -> bool:
    """Whether each output channel of ``conv`` has its own slice of the weight, on one axis."""
    if conv is None or type(conv) not in (*CONVOLUTIONS, *TRANSPOSED) or has_hooks(conv):
        return False
    return type(conv) in CONVOLUTIONS or groups_of(conv) == 1


def has_hooks(module: nn.Module) -> bool:
    """Whether more than its forward happens when ``module`` is called."""
    return bool(module._forward_pre_hooks or module._forward_hooks)
