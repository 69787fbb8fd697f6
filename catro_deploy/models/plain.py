"""Replace computed weights (standardised or normalised at each call) by plain ones, whose channels can be cut.

A filter that is standardised over its inputs, or divided by its norm, changes if some inputs are removed; a plain one
does not. The network computes the same function, and is fine-tuned with plain weights.
"""

import copy
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize, prune, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm, SpectralNormLoadStateDictPreHook
from torch.nn.utils.weight_norm import WeightNorm
from torch.optim.swa_utils import AveragedModel

from catro_deploy.errors import ModelError

__all__ = ["copied", "unwrapped", "write_out_weights_"]

# Modules of timm and transformers that define convolutions with weight standardisation (arXiv:1903.10520, 2101.08692):
# those of normaliser-free networks and BiT.
STANDARDISED = ("timm.layers.std_conv", "transformers.models.bit.modeling_bit")


def unwrapped(model: nn.Module) -> nn.Module:
    """The module that wrappers for several devices, a compiler, or averaged weights hold; ``model`` if it is none.

    Raises:
        ModelError: it has a TorchScript module, whose forward cannot be followed.
    """
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel | AveragedModel):
            model = model.module
        elif isinstance(compiled := getattr(model, "_orig_mod", None), nn.Module):
            model = compiled
        else:
            break
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"{f'{name} in the model' if name else 'The model'} is a TorchScript module, whose layers cannot be "
                "changed.",
                "Give the torch.nn.Module that it was made from.",
            )
    return model


def copied(model: nn.Module) -> nn.Module:
    """A deep copy of ``model``. Weights that its hooks have computed have no history there; ``deepcopy`` rejects it."""
    computed = (value for module in model.modules() for value in vars(module).values() if _is_computed(value))
    return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in computed})


def _is_computed(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_leaf


def write_out_weights_(model: nn.Module) -> nn.Module:
    """Remove parametrisations, weight and spectral norm, and masks; replace standardised convolutions by plain ones.

    Those of transformers whose padding depends on the size of their input are kept.

    Args:
        model: in eval mode; it is changed in place, and computes the same function as before.

    Returns:
        ``model``.
    """
    for module in list(model.modules()):
        _remove_hooks_(module)
        if parametrize.is_parametrized(module):
            # The class holds the computed weight as a property, and copies of a module share it.
            shared = type(module)
            module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            for name in tuple(cast(nn.ModuleDict, module.parametrizations)):
                parametrize.remove_parametrizations(module, name)
    plain: dict[nn.Module, nn.Conv2d] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if isinstance(module, nn.Conv2d) and type(module).__module__ in STANDARDISED and not _has_own_padding(module):
            plain[module] = plain.get(module) or _plain(module)
            model.set_submodule(path, plain[module])
    return model


def _remove_hooks_(module: nn.Module) -> None:
    """Remove the hooks of torch.nn.utils that compute a weight before each forward: norms, and masks of its pruning."""
    for hook in list(module._forward_pre_hooks.values()):
        if isinstance(hook, WeightNorm):
            remove_weight_norm(module, hook.name)
        elif isinstance(hook, SpectralNorm):
            remove_spectral_norm(module, hook.name)
        elif isinstance(hook, prune.BasePruningMethod):
            prune.remove(module, hook._tensor_name)  # type: ignore[no-untyped-call]
    for key, loading in list(module._load_state_dict_pre_hooks.items()):
        # remove_spectral_norm of PyTorch 2 overlooks this hook, since it is wrapped.
        if isinstance(getattr(loading, "hook", None), SpectralNormLoadStateDictPreHook):
            del module._load_state_dict_pre_hooks[key]


def _has_own_padding(conv: nn.Conv2d) -> bool:
    return getattr(conv, "pad", None) is not None


def _plain(conv: Any) -> nn.Conv2d:  # noqa: ANN401 - one of four classes of timm, or that of transformers
    kind: type[nn.Conv2d] = nn.Conv2d
    if getattr(conv, "same_pad", False):
        from timm.layers.conv2d_same import Conv2dSame as kind  # noqa: N813
    made = kind(
        conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups,
        conv.bias is not None,
    )  # fmt: skip
    with torch.no_grad():
        filters = conv.weight.flatten(1)
        variance, mean = torch.var_mean(filters, dim=1, correction=0, keepdim=True)
        gain = (conv.gain * conv.scale).reshape(-1, 1) if hasattr(conv, "gain") else 1
        made.weight.copy_(((filters - mean) * gain * torch.rsqrt(variance + conv.eps)).reshape_as(conv.weight))
        if made.bias is not None:
            made.bias.copy_(conv.bias)
    return made.train(conv.training)
