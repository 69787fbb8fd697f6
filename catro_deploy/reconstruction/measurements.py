"""Measurements of a network before it is cut: the same for every budget, so that pruning runs can share them."""

from dataclasses import dataclass, field

__all__ = ["Measurements"]


@dataclass(frozen=True)
class Measurements:
    """Measurements of one network on one set of images; filled in as they are made.

    Attributes:
        orders: for each group, its channels in the order of their removal, and the error after each removal.
        width_losses: the loss, in nats, of a group at a width.
        branch_losses: the loss without a branch.
    """

    orders: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    width_losses: dict[tuple[str, int], float] = field(default_factory=dict)
    branch_losses: dict[str, float] = field(default_factory=dict)
