"""Removing channels from modules, and the masked network that the result must equal.

What is cut is named by its module, or by the full name of a parameter, buffer or size outside the KINDS.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.cut.kinds import axes, channels, groups_of, is_transposed, resize_, supports
from catro_deploy.graph.cut.sizes import resize_stored_, stored_sizes
from catro_deploy.records import Group, Keep

__all__ = ["apply_keeps_", "further", "keeps_of", "masked", "spread", "supports"]

Indices = tuple[int, ...]


def keeps_of(
    groups: Sequence[Group], kept: Mapping[str, Sequence[int]], sizes: Mapping[str, tuple[int, int]]
) -> dict[str, Keep]:
    """What each module keeps if each group in ``kept`` keeps the given channels; ``sizes`` are (out, in) channels."""
    dropped: dict[tuple[str, str], set[int]] = {}
    for group in groups:
        gone = set(range(group.width)) - set(kept.get(group.name, range(group.width)))
        for slot in group.slots if gone else ():
            at = dropped.setdefault((slot.module, slot.axis), set())
            at.update(index for index, channel in zip(slot.index, slot.channel, strict=True) if channel in gone)

    def remaining(module: str, axis: str, size: int) -> Indices | None:
        gone = dropped.get((module, axis))
        return tuple(i for i in range(size) if i not in gone) if gone else None

    modules = dict.fromkeys(module for module, _ in dropped)
    return {m: Keep(remaining(m, "out", sizes[m][0]), remaining(m, "in", sizes[m][1])) for m in modules}


def spread(group: Group, width: int) -> Indices:
    """``width`` evenly spaced channels of ``group``, as a sample."""
    return tuple(place * group.width // width for place in range(width))


def further(before: Keep | None, after: Keep) -> Keep:
    """What a module cut to ``before`` must keep to become ``after``, both in the indices of the uncut module."""

    def within(old: Indices | None, new: Indices | None) -> Indices | None:
        if old is None or new is None:
            return new
        stay = set(new)
        # None where nothing more is removed: a tensor cut to one channel no longer shows on which axis that was.
        return None if old == new else tuple(place for place, index in enumerate(old) if index in stay)

    return after if before is None else Keep(within(before.out, after.out), within(before.inputs, after.inputs))


def apply_keeps_(model: nn.Module, keeps: Mapping[str, Keep]) -> nn.Module:
    """Remove from ``model``, in place, all channels that ``keeps`` does not keep, and return the model.

    A tensor that several modules share is cut once and stays shared.

    Raises:
        ModelError: ``keeps`` names what the model does not have or what cannot be cut, removes a whole module, splits a
            group of a grouped convolution or a GroupNorm, or cuts a shared tensor in two ways.
    """
    modules, places = dict(model.named_modules(remove_duplicate=False)), _places(model)
    numbers, cuts = stored_sizes(model, keeps), _Cuts()
    for name, keep in keeps.items():
        if name in numbers:
            continue
        for tensor, axis, kept in _cuts_of(modules, places, name, keep):
            cuts.add(name, tensor, axis, kept)
    for name, (module, attribute) in numbers.items():
        if (kept := keeps[name].out) is not None:
            resize_stored_(module, attribute, kept)
    touched = {name: keep for name, keep in keeps.items() if name in modules}
    for full_name, (module, attribute) in places.items():
        cut = cuts.result(getattr(module, attribute))
        if cut is not None:
            setattr(module, attribute, cut)
            touched.setdefault(full_name.rpartition(".")[0], Keep())
    done: set[nn.Module] = set()
    for name, keep in touched.items():
        if modules[name] not in done:  # it may have a second name
            resize_(modules[name], keep)
            done.add(modules[name])
    return model


def masked(model: nn.Module, keeps: Mapping[str, Keep]) -> nn.Module:
    """A copy of ``model`` at full width in which nothing reads a removed channel: the weights that would are zero.

    In a grouped convolution nothing is zeroed: no group that stays reads a channel of a removed group.
    """
    copied = copy.deepcopy(model)
    modules, places = dict(copied.named_modules(remove_duplicate=False)), _places(copied)
    for name, keep in keeps.items():
        if keep.inputs is None:
            continue
        module = modules.get(name)
        if module is None:
            owner, attribute = places[name]
            weight, axis = getattr(owner, attribute).data, 1
        elif groups_of(module) > 1:
            continue
        else:
            weight, axis = module.get_parameter("weight").data, 0 if is_transposed(module) else 1
        gone = torch.ones(weight.shape[axis], dtype=torch.bool, device=weight.device)
        gone[list(keep.inputs)] = False
        weight.movedim(axis, 0)[gone] = 0
    return copied


Places = Mapping[str, tuple[nn.Module, str]]
"""Where the tensor of each name is held: the module, and its attribute."""


def _places(model: nn.Module) -> Places:
    """Places of all parameters and buffers; shared ones have several names."""
    return {
        f"{prefix}.{attribute}" if prefix else attribute: (module, attribute)
        for prefix, module in model.named_modules(remove_duplicate=False)
        for attribute, _ in (
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        )
    }


def _cuts_of(
    modules: Mapping[str, nn.Module], places: Places, name: str, keep: Keep
) -> Iterator[tuple[torch.Tensor, int, Indices | None]]:
    """The tensors to cut for ``keep`` of ``name``, each with an axis and the indices that stay on it."""
    if name in modules and supports(modules[name]):
        yield from _module_cuts(name, modules[name], keep)
    elif name in places:
        module, attribute = places[name]
        tensor = getattr(module, attribute)
        out, inputs = axes(tensor.shape)
        yield tensor, out, keep.out
        yield tensor, inputs, keep.inputs
    elif name in modules:
        raise ModelError(
            f"The plan names {name or 'the whole model'}, a {type(modules[name]).__name__}, which cannot be cut.",
            "Use the model that the plan was made for. If a parametrisation computes its weight, remove it first.",
        )
    else:
        raise ModelError(
            f"The plan names {name}, which is not in the model.", "Use the model that the plan was made for."
        )


def _module_cuts(name: str, module: nn.Module, keep: Keep) -> Iterator[tuple[torch.Tensor, int, Indices | None]]:
    whole = _in_whole_groups(name, module, keep)
    width, _ = channels(module)
    own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    for attribute, tensor in own:
        if attribute == "weight" and tensor.ndim > 1:
            first, second = (whole.inputs, whole.out) if is_transposed(module) else (whole.out, whole.inputs)
            yield tensor, 0, first
            yield tensor, 1, second if groups_of(module) == 1 else None
        elif tensor.ndim and tensor.shape[0] == width:
            yield tensor, 0, whole.out


def _in_whole_groups(name: str, module: nn.Module, keep: Keep) -> Keep:
    """``keep`` on both sides of a module that computes group by group; each group is kept or removed as a whole."""
    groups = groups_of(module)
    if groups == 1 or keep == Keep():
        return keep
    each_out, each_in = (width // groups for width in channels(module))
    if keep.out is not None:
        left = sorted({index // each_out for index in keep.out})
    else:
        left = sorted({index // each_in for index in keep.inputs or ()})
    whole = Keep(*(tuple(g * each + i for g in left for i in range(each)) for each in (each_out, each_in)))
    if keep.out not in (None, whole.out) or keep.inputs not in (None, whole.inputs):
        raise ModelError(
            f"The plan splits the groups of {name}: a {type(module).__name__} with {groups} groups of {each_out} "
            "channels keeps or drops each group as a whole.",
            "Make the plan again with this version: catro-deploy prune",
        )
    return whole


class _Cuts:
    """What stays of each tensor, by its id: for each axis, the name that decided it and the indices."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, tuple[str, Indices]]] = {}
        self._results: dict[int, torch.Tensor] = {}
        # Kept alive until all cuts are done: the id of a freed tensor may be reused.
        self._tensors: list[torch.Tensor] = []

    def add(self, name: str, tensor: torch.Tensor, axis: int, kept: Indices | None) -> None:
        """Record that ``name`` keeps these indices of an axis of ``tensor``; None keeps all.

        Raises:
            ModelError: nothing stays, the tensor has no such index, or another name keeps other indices.
        """
        if kept is None:
            return
        if not kept:
            raise ModelError(f"The plan leaves no channels in {name}.", "Keep at least one, or drop its whole branch.")
        if axis >= tensor.ndim or max(kept) >= tensor.shape[axis]:
            there = tensor.shape[axis] if axis < tensor.ndim else 0
            raise ModelError(
                f"The plan keeps channel {max(kept)} of {name}, which has {there} (shape {tuple(tensor.shape)}).",
                "Use the model that the plan was made for.",
            )
        self._tensors.append(tensor)
        other, before = self._kept.setdefault(id(tensor), {}).setdefault(axis, (name, kept))
        if before != kept:
            raise ModelError(
                f"{other} and {name} share a weight, but the plan keeps different channels of each.",
                f'Leave them as they are: ignore = ["{other}"] in [prune] of catro.toml.',
            )

    def result(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The cut ``tensor``: the same object for the same tensor, or None if it stays as it is."""
        kept = self._kept.get(id(tensor))
        if kept is None:
            return None
        if id(tensor) not in self._results:
            data = tensor.data
            for axis, (_, indices) in kept.items():
                data = data.index_select(axis, torch.tensor(indices, device=data.device))
            data = data.contiguous()
            is_parameter = isinstance(tensor, nn.Parameter)
            self._results[id(tensor)] = nn.Parameter(data, tensor.requires_grad) if is_parameter else data
        return self._results[id(tensor)]
