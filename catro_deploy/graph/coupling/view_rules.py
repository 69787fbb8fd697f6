"""How operations that only move elements map labels of inputs to labels of outputs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from catro_deploy.graph.coupling.atoms import Labels, constant
from catro_deploy.graph.coupling.follower import Axes, Follower, Given, LabelledTensors, Rule, tensors_in

__all__ = ["VIEW_RULES"]


def _view(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    """Axes are split and merged: a block of old axes becomes a block of new axes with the same number of elements."""
    source = next(tensors_in(given))
    axes = follower.of(source).axes
    new: Axes = {}
    for before, after in _blocks(source.shape, result.shape):
        labelled = [axis for axis in before if axis in axes]
        if len(labelled) > 1:
            for axis in labelled:
                follower.fix(axes[axis], "two axes of channels become one")
        elif labelled:
            shape = [source.shape[axis] for axis in before]
            along = [-1 if axis == labelled[0] else 1 for axis in before]
            grid = np.broadcast_to(axes[labelled[0]].reshape(along), shape)
            grid = grid.reshape([result.shape[axis] for axis in after])
            place, labels = _axis_of(follower, grid)
            follower.follow_stored_size(axes[labelled[0]])
            new[after[place]] = labels
    return [(result, new)]


def _blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest blocks of axes longer than 1 that hold the same number of elements before and after."""
    old = [axis for axis, size in enumerate(before) if size > 1]
    new = [axis for axis, size in enumerate(after) if size > 1]
    blocks = []
    while old and new:
        left, right = [old.pop(0)], [new.pop(0)]
        while (one := math.prod(before[axis] for axis in left)) != (other := math.prod(after[axis] for axis in right)):
            (left if one < other else right).append((old if one < other else new).pop(0))
        blocks.append((left, right))
    return blocks


def _axis_of(follower: Follower, grid: Labels) -> tuple[int, Labels]:
    """The axis of ``grid`` along which its labels vary, and the labels on it.

    If channels are split over several axes, as by ``view(n, groups, channels // groups, ...)``, the last of these axes
    shrinks when channels are removed, by the same number in each row: the labels of a column become one atom.
    """
    varying = [axis for axis in range(grid.ndim) if (np.take(grid, [0], axis) != grid).any()] or [0]
    *outer, last = varying
    labels = np.moveaxis(grid, last, -1).reshape(-1, grid.shape[last])
    for row in labels[1:] if outer else ():
        follower.tie(labels[0], row, "a view or shuffle by groups")
    return last, labels[0]


def _permuted(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    source = given["self"]
    order = list(range(source.ndim))
    if "dims" in given:
        order = [axis % source.ndim for axis in given["dims"]]
    else:
        one, other = given.get("dim0", 0), given.get("dim1", -1)
        order[one], order[other] = order[other], order[one]
    axes = follower.of(source).axes
    return [(result, {place: axes[axis] for place, axis in enumerate(order) if axis in axes})]


def _expanded(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    shift = result.ndim - given["self"].ndim
    return [(result, {axis + shift: labels for axis, labels in follower.of(given["self"]).axes.items()})]


def _repeated(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    shift = result.ndim - given["self"].ndim
    axes = follower.of(given["self"]).axes
    return [(result, {a + shift: np.tile(labels, given["repeats"][a + shift]) for a, labels in axes.items()})]


def _cat(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    """Members keep their own labels along the axis; along the others they are joined."""
    members = [tensor for tensor in tensors_in(given["tensors"]) if tensor.numel()]
    along = given["dim"] % result.ndim
    known = [follower.of(member).axes for member in members]
    axes = _other_axes(follower, known, along)
    if any(along in mine for mine in known):
        parts = [mine.get(along, constant(m.shape[along])) for mine, m in zip(known, members, strict=True)]
        axes[along] = np.concatenate(parts)
    return [(result, axes)]


def _stack(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    along = given["dim"] % result.ndim
    axes = _other_axes(follower, [follower.of(member).axes for member in tensors_in(given["tensors"])])
    return [(result, {axis + (axis >= along): labels for axis, labels in axes.items()})]


def _other_axes(follower: Follower, known: Sequence[Mapping[int, Labels]], along: int | None = None) -> Axes:
    """Labels of the axes of concatenated tensors except the axis ``along``; aligned labels are joined."""
    axes: Axes = {}
    for axis in {axis for mine in known for axis in mine} - {along}:
        axes[axis] = next(mine[axis] for mine in known if axis in mine)
        for mine in known:
            follower.join(axes[axis], mine.get(axis, constant(len(axes[axis]))), "constant channels are concatenated")
    return axes


def _split(follower: Follower, given: Given, result: Sequence[torch.Tensor]) -> LabelledTensors:
    """Parts shrink with held numbers that are their sizes; with one size, or constants, equal parts shrink equally."""
    axes = dict(follower.of(given["self"]).axes)
    along = given["dim"] % given["self"].ndim
    whole = axes.pop(along, None)
    if whole is None:
        return [(part, axes) for part in result]
    ends = np.cumsum([part.shape[along] for part in result]).tolist()
    parts = np.split(whole, ends[:-1])
    follower.follow_stored_size(whole)
    if not _held(follower, parts, together="split_sizes" in given):
        for part in parts[1:]:
            if len(part) == len(parts[0]):
                follower.tie(parts[0], part, "a split into equal parts")
            else:
                follower.fix(whole, "they are split into unequal parts")
    return [(tensor, axes | {along: labels}) for tensor, labels in zip(result, parts, strict=True)]


def _held(follower: Follower, parts: Sequence[Labels], *, together: bool) -> bool:
    """Whether the module holds a size for each of ``parts``, in one list or separately.

    ``together``: whether the operation is given one size for each part. If not, a single number, held or computed, is
    the size of all parts, and the result is False.
    """
    if not together:
        follower.follow_stored_size(parts[0])
        return False
    if follower.follow_stored_size(*parts):
        return True
    each = [follower.follow_stored_size(part) for part in parts]  # not lazily: every stored size must be followed
    return all(each)


def _slice(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    """A slice may shrink if the module holds its bounds or if it is one of equal parts; else all channels must stay."""
    axes = dict(follower.of(given["self"]).axes)
    along = given["dim"] % given["self"].ndim
    if along in axes and result.shape[along] < len(axes[along]):
        whole, size = axes[along], result.shape[along]
        start, stop, step = slice(given["start"], given["end"], given["step"]).indices(len(whole))
        stored = [follower.follow_stored_size(whole[:end]) for end in (start, stop) if 0 < end < len(whole)]
        if step == 1 and all(stored):
            pass
        elif step == 1 and size and len(whole) % size == 0 and start % size == 0:
            for row in whole.reshape(-1, size):
                follower.tie(whole[:size], row, "a slice of equal parts")
        else:
            follower.fix(whole, "a part of them is cut out")
        axes[along] = whole[start : start + step * size : step]
    return [(result, axes)]


def _without_axis(follower: Follower, given: Given, result: Any) -> LabelledTensors:  # noqa: ANN401
    """One index of an axis, or each separately: ``select`` and ``unbind``."""
    axes = dict(follower.of(given["self"]).axes)
    along = given["dim"] % given["self"].ndim
    if along in axes:
        follower.fix(axes.pop(along), "they are taken one by one")
    left = {axis - (axis > along): labels for axis, labels in axes.items()}
    return [(tensor, left) for tensor in tensors_in(result)]


def _padded(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    """The number of zeros with which a forward pads channels is constant."""
    axes = dict(follower.of(given["self"]).axes)
    pad = [*given["pad"], *[0] * (2 * result.ndim - len(given["pad"]))]
    for axis, labels in axes.items():
        before, after = pad[2 * (result.ndim - 1 - axis)], pad[2 * (result.ndim - 1 - axis) + 1]
        if min(before, after) < 0:
            follower.fix(labels, "a part of them is cut out")
        axes[axis] = np.concatenate([constant(max(before, 0)), labels, constant(max(after, 0))])[: result.shape[axis]]
    return [(result, axes)]


def _pixel_shuffle(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    """All channels that become positions of the same output channel are one atom."""
    axes, channels = follower.of(given["self"]).axes, result.ndim - 3
    if channels not in axes or result.shape[channels] == 1:
        for labels in axes.values():
            follower.fix(labels, "all become positions")
        return [(result, {})]
    columns = axes[channels].reshape(result.shape[channels], -1).T
    for column in columns[1:]:
        follower.tie(columns[0], column, "a pixel shuffle")
    return [(result, {channels: columns[0]})]


def _pixel_unshuffle(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    axes, channels = follower.of(given["self"]).axes, result.ndim - 3
    if channels not in axes:
        return [(result, {})]
    return [(result, {channels: np.repeat(axes[channels], result.shape[channels] // len(axes[channels]))})]


def _gated(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    """A gated linear unit: the second half of the channels scales the first."""
    axes, along = dict(follower.of(given["self"]).axes), given["dim"] % result.ndim
    if along in axes:
        axes[along], gates = np.split(axes[along], 2)
        follower.tie(axes[along], gates, "a gated linear unit")
    return [(result, axes)]


def _channel_shuffle(follower: Follower, given: Given, result: torch.Tensor) -> LabelledTensors:
    axes = dict(follower.of(given["self"]).axes)
    if 1 in axes:
        rows = axes[1].reshape(given["groups"], -1)
        for row in rows[1:]:
            follower.tie(rows[0], row, "a channel shuffle")
        axes[1] = rows.T.ravel()
    return [(result, axes)]


VIEW_RULES: dict[str, Rule] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_copy", "unsqueeze", "squeeze", "flatten"), _view),
    **dict.fromkeys(("unsqueeze_", "squeeze_", "_reshape_alias"), _view),
    **dict.fromkeys(("permute", "transpose", "t", "transpose_"), _permuted),
    "expand": _expanded,
    "repeat": _repeated,
    "cat": _cat,
    "stack": _stack,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk"), _split),
    "slice": _slice,
    **dict.fromkeys(("select", "unbind"), _without_axis),
    "constant_pad_nd": _padded,
    "glu": _gated,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    **dict.fromkeys(("native_channel_shuffle", "channel_shuffle"), _channel_shuffle),
}
