"""Taking channels out of modules, and the masked network that the result must equal."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.records import Group, Keep

__all__ = ["apply_keeps_", "further", "is_depthwise", "keeps_of", "masked", "spread", "supports"]

SUPPORTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.PReLU)


def supports(module: nn.Module) -> bool:
    """Whether channels can be taken out of ``module``."""
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return module.groups == 1 or is_depthwise(module)
    return type(module) in SUPPORTED


def is_depthwise(module: nn.Module) -> bool:
    """Whether each channel of a convolution has its own filter and nothing else."""
    groups = getattr(module, "groups", 1)
    return groups > 1 and groups == module.in_channels == module.out_channels


def keeps_of(
    groups: Sequence[Group], kept: Mapping[str, Sequence[int]], sizes: Mapping[str, tuple[int, int]]
) -> dict[str, Keep]:
    """What each module keeps when each group in ``kept`` keeps those channels; ``sizes`` are (out, in) channels."""
    dropped: dict[tuple[str, str], set[int]] = {}
    for group in groups:
        gone = set(range(group.width)) - set(kept.get(group.name, range(group.width)))
        for slot in group.slots if gone else ():
            at = dropped.setdefault((slot.module, slot.axis), set())
            at.update(index for index, channel in zip(slot.index, slot.channel, strict=True) if channel in gone)

    def remaining(module: str, axis: str, size: int) -> tuple[int, ...] | None:
        gone = dropped.get((module, axis))
        return tuple(i for i in range(size) if i not in gone) if gone else None

    modules = dict.fromkeys(module for module, _ in dropped)
    return {m: Keep(remaining(m, "out", sizes[m][0]), remaining(m, "in", sizes[m][1])) for m in modules}


def spread(group: Group, width: int) -> tuple[int, ...]:
    """So many channels of ``group``, evenly spaced; more where a module that holds a part of them would have none."""
    chosen = {place * group.width // width for place in range(width)}
    for slot in group.slots:
        if chosen.isdisjoint(slot.channel):
            chosen.add(slot.channel[0])
    return tuple(sorted(chosen))


def apply_keeps_(model: nn.Module, keeps: Mapping[str, Keep]) -> nn.Module:
    """Take out of ``model``, in place, all channels that ``keeps`` does not name; the model is returned.

    Raises:
        ModelError: ``keeps`` names a module that the model has not, or a kind that cannot be cut.
    """
    modules = dict(model.named_modules())
    for name, keep in keeps.items():
        module = modules.get(name)
        if module is None or not supports(module):
            what = "is not in the model" if module is None else f"is a {type(module).__name__}, which cannot be cut"
            raise ModelError(f"The plan names {name}, which {what}.", "Use the model that the plan was made for.")
        _cut(module, keep)
    return model


def further(before: Keep | None, after: Keep) -> Keep:
    """What a module cut to ``before`` must keep to arrive at ``after``, both in the indices of the uncut module."""

    def within(old: tuple[int, ...] | None, new: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if old is None or new is None:
            return new
        return tuple(place for place, index in enumerate(old) if index in set(new))

    return after if before is None else Keep(within(before.out, after.out), within(before.inputs, after.inputs))


def masked(model: nn.Module, keeps: Mapping[str, Keep]) -> nn.Module:
    """A copy of ``model`` in full width in which nothing reads a dropped channel: its weights there are zero."""
    copied = copy.deepcopy(model)
    modules = dict(copied.named_modules())
    for name, keep in keeps.items():
        if keep.inputs is not None:
            weight = modules[name].get_parameter("weight").data
            gone = torch.ones(weight.shape[1], dtype=torch.bool)
            gone[list(keep.inputs)] = False
            weight[:, gone] = 0
    return copied


def _cut(module: nn.Module, keep: Keep) -> None:
    out = None if keep.out is None else torch.tensor(keep.out)
    inputs = None if keep.inputs is None else torch.tensor(keep.inputs)
    for name, parameter in module.named_parameters(recurse=False):
        data = parameter.data if out is None else parameter.data.index_select(0, out.to(parameter.device))
        if inputs is not None and name == "weight":
            data = data.index_select(1, inputs.to(parameter.device))
        setattr(module, name, nn.Parameter(data.contiguous(), requires_grad=parameter.requires_grad))
    if out is not None:
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.ndim:
                setattr(module, name, buffer.index_select(0, out.to(buffer.device)).contiguous())
    _resize(module, None if out is None else len(out), None if inputs is None else len(inputs))


def _resize(module: nn.Module, out: int | None, inputs: int | None) -> None:
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = out or module.out_features, inputs or module.in_features
    elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        if is_depthwise(module):
            module.groups = module.in_channels = module.out_channels = out or module.out_channels
        else:
            module.out_channels, module.in_channels = out or module.out_channels, inputs or module.in_channels
    elif out and isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        module.num_features = out
    elif out and isinstance(module, nn.PReLU):
        module.num_parameters = out
