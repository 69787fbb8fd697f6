"""Groups of channels, from the atoms found by following a run of the model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from catro_deploy.graph.coupling.atoms import CONSTANT, Labels
from catro_deploy.graph.coupling.couple import Coupling
from catro_deploy.graph.coupling.follower import Side
from catro_deploy.graph.cut.surgery import supports
from catro_deploy.records import Group, Slot

__all__ = ["groups_of", "tie_of"]

_Key = tuple[str, Side]


def groups_of(model: nn.Module, coupling: Coupling, order: Mapping[str, int]) -> list[Group]:
    """Group the atoms of ``coupling`` that have the same places in the same modules.

    ``order`` maps each convolution and linear layer to its position in the order of execution. Groups are named after
    their first producer; groups with the same producer are numbered from the second on (``name#2``).
    """
    places = _places(model, coupling)
    where: dict[int, dict[_Key, list[int]]] = {}
    for key, labels in places.items():
        for index, root in enumerate(coupling.atoms.roots(labels).tolist()):
            if root != CONSTANT:
                where.setdefault(root, {}).setdefault(key, []).append(index)
    families: dict[tuple[object, bool], list[int]] = {}
    for root, indices in where.items():
        signature = frozenset((key, len(found)) for key, found in indices.items())
        families.setdefault((signature, bool(coupling.atoms.reason(root))), []).append(root)
    groups = []
    for roots in families.values():
        keys = list(where[roots[0]])
        producers = sorted({name for name, side in keys if side == "out" and name in order}, key=order.__getitem__)
        if producers:
            roots.sort(key=lambda root: where[root][producers[0], "out"][0])
            slots = tuple(_slot(key, [where[root][key] for root in roots]) for key in keys)
            reason = next(filter(None, map(coupling.atoms.reason, roots)), "")
            if len(roots) == 1 and any(len(slot.index) > 1 for slot in slots):
                tie = coupling.atoms.tied_by(roots[0])
                reason = reason or (f"all of them are coupled by {tie}" if tie else "all of them are coupled")
            groups.append(Group(producers[0], len(roots), slots, tuple(producers), reason))
    return _numbered(sorted(groups, key=lambda group: (order[group.name], _first_index(group))))


def tie_of(model: nn.Module, coupling: Coupling, group: Group) -> str:
    """The operation that couples the channels of ``group`` with each other, and its place; empty if there is none."""
    labels = _places(model, coupling)[group.producers[0], "out"]
    return coupling.atoms.tied_by(int(labels[_first_index(group)]))


def _numbered(groups: Sequence[Group]) -> list[Group]:
    seen: Counter[str] = Counter()
    named = []
    for group in groups:
        seen[group.name] += 1
        number = seen[group.name]
        named.append(replace(group, name=f"{group.name}#{number}") if number > 1 else group)
    return named


def _first_index(group: Group) -> int:
    """The group's first channel in its first producer."""
    return next(slot.index[0] for slot in group.slots if (slot.module, slot.axis) == (group.producers[0], "out"))


def _places(model: nn.Module, coupling: Coupling) -> dict[_Key, Labels]:
    """Labels by module and side, or by the name of a tensor or size outside the kinds of modules that can be cut."""
    modules = dict(model.named_modules())
    names: dict[int, list[str]] = {}  # several for a parameter that modules share
    for name, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        names.setdefault(id(tensor), []).append(name)
    aliases = {several[0]: several for several in names.values()}
    found: dict[_Key, Labels] = {}
    for leaf, labels in coupling.leaves.items():
        for name in aliases.get(leaf.tensor, [leaf.tensor]):
            owner = name.rpartition(".")[0]
            if owner in modules:  # otherwise this is a second name of a module
                found.setdefault((owner if supports(modules[owner]) else name, leaf.side), labels)
    return found


def _slot(key: _Key, indices: Sequence[Sequence[int]]) -> Slot:
    pairs = sorted((index, channel) for channel, mine in enumerate(indices) for index in mine)
    return Slot(key[0], key[1], tuple(index for index, _ in pairs), tuple(channel for _, channel in pairs))
