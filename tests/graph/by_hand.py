"""Hand-written channel groups."""

from typing import Any

from catro_deploy.records import Group, Slot


def atoms(module: str, axis: Any, width: int, each: int = 1, at: int = 0, rounds: int = 1) -> Slot:
    """``each`` consecutive indices per atom, for ``width`` atoms, starting at ``at``; ``rounds`` times in a row."""
    channel = tuple(range(width)) * rounds
    index = range(at, at + len(channel) * each)
    return Slot(module, axis, tuple(index), tuple(one for one in channel for _ in range(each)))


def group(name: str, width: int, *slots: Slot) -> Group:
    return Group(name, width, slots, (name,))
