"""The kinds of modules whose channels can be cut: how many channels they have, and on which axes of their weights."""

from collections.abc import Sequence

from torch import nn

from catro_deploy.records import Keep

__all__ = ["axes", "channels", "groups_of", "is_transposed", "resize_", "supports"]

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d
KINDS = Conv | Transposed | Norm | nn.Linear | nn.GroupNorm | nn.PReLU


def supports(module: nn.Module) -> bool:
    """Whether channels can be removed from ``module``: it is of one of the kinds or a subclass, and has its own weight.

    A weight that a parametrisation computes (weight_norm, spectral_norm) does not count as its own.
    """
    return isinstance(module, KINDS) and "weight" in module._parameters


def channels(module: nn.Module) -> tuple[int, int]:
    """Channels (out, in) of a module of one of the kinds; (0, 0) for others."""
    match module:
        case nn.Linear():
            return module.out_features, module.in_features
        case nn.GroupNorm():
            return module.num_channels, module.num_channels
        case nn.PReLU():
            return module.num_parameters, module.num_parameters
    if isinstance(module, Conv | Transposed):
        return module.out_channels, module.in_channels
    width = module.num_features if isinstance(module, Norm) else 0
    return width, width


def groups_of(module: nn.Module) -> int:
    """The number of groups that ``module`` computes independently; each is kept or removed as a whole."""
    if isinstance(module, nn.GroupNorm):
        return module.num_groups
    return module.groups if isinstance(module, Conv | Transposed) else 1


def is_transposed(module: nn.Module) -> bool:
    """Whether axis 0 of the weight is that of the inputs."""
    return isinstance(module, Transposed)


def axes(shape: Sequence[int]) -> tuple[int, int]:
    """Axes (out, in) of a tensor outside the kinds: its only axis longer than 1, or the first of several; and axis 1.

    A feature map with its own batch axis, such as (1, channels, height, width), has its channels on axis 1.
    """
    long = [axis for axis, size in enumerate(shape) if size > 1]
    return (long[0] if len(long) == 1 else next((axis for axis in long if axis < 2), 0)), 1


def resize_(module: nn.Module, keep: Keep) -> None:
    """Update the attributes that hold the size of a ``module`` that was cut.

    The size is taken from its tensors, or from ``keep`` if it has none.
    """
    tensors = (module._parameters.get("weight"), *module.buffers(recurse=False))
    shape = next((tensor.shape for tensor in tensors if tensor is not None and tensor.ndim), None)
    first = shape[0] if shape is not None else len(keep.out or range(channels(module)[0]))
    second = shape[1] if shape is not None and len(shape) > 1 else 0
    match module:
        case nn.Linear():
            module.out_features, module.in_features = first, second
        case nn.GroupNorm():
            module.num_groups = first * module.num_groups // module.num_channels
            module.num_channels = first
        case nn.PReLU():
            module.num_parameters = first
    if isinstance(module, Norm):
        module.num_features = first
    elif isinstance(module, Conv | Transposed):
        _resize_conv_(module, first, second)


def _resize_conv_(module: Conv | Transposed, first: int, second: int) -> None:
    """Axis 0 of the weight runs over all groups, axis 1 over the channels of one."""
    if isinstance(module, Transposed):
        if module.groups > 1:
            module.groups = first * module.groups // module.in_channels
        module.in_channels, module.out_channels = first, second * module.groups
    else:
        if module.groups > 1:
            module.groups = first * module.groups // module.out_channels
        module.out_channels, module.in_channels = first, second * module.groups
