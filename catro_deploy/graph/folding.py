"""Normalisation folded into the convolutions before it, which is what it amounts to in eval mode."""

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from catro_deploy.graph.symbolic import evaluation_graph

__all__ = ["fold_batch_norm_", "folded", "has_hooks"]


def folded(model: nn.Module) -> fx.GraphModule:
    """A copy of ``model`` in eval mode, the same but for rounding, with fewer operations.

    Raises:
        ModelError: the model's own forward cannot be traced.
    """
    return fold_batch_norm_(evaluation_graph(model).module)


def fold_batch_norm_(module: fx.GraphModule) -> fx.GraphModule:
    """Give each convolution of a network in eval mode the normalisation that follows it alone, in place."""
    modules = dict(module.named_modules())
    for node in list(module.graph.nodes):
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        # Classes that derive from these may do more: standardise the weight, or activate.
        if type(norm) is not nn.BatchNorm2d or norm.running_mean is None or norm.running_var is None:
            continue
        source = node.args[0]
        conv = modules.get(str(source.target)) if source.op == "call_module" else None
        calls = module.graph.find_nodes(op="call_module", target=source.target)
        if type(conv) is nn.Conv2d and len(source.users) == len(calls) == 1 and not has_hooks(conv):
            conv.weight, bias = fuse_conv_bn_weights(
                conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            conv.bias = bias
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def has_hooks(module: nn.Module) -> bool:
    """Whether more than its forward happens when ``module`` is called."""
    return bool(module._forward_pre_hooks or module._forward_hooks)
