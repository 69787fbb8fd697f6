"""Hold out a share of the training images, without separating images of the same object."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import DataError
from catro_deploy.units import counted

__all__ = ["hold_out"]


def hold_out(
    labels: NDArray[np.int64], units: Sequence[int | str] | NDArray[np.generic], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the training and of the validation images, both in ascending order.

    Images of one class with the same entry in ``units`` (N,) belong together, such as the frames of one
    track. About ``share`` of every class's units are held out: at least one, never all. Which ones depends on
    the seed and the class alone, so a class keeps its validation images when other classes change.

    Raises:
        DataError: a class has only one unit.
    """
    units = np.asarray(units)
    held_out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        names, unit_of = np.unique(units[members], return_inverse=True)
        if len(names) < 2:
            together = counted(len(members), "training image", "training images that all belong together")
            raise DataError(
                f"Class {label} (counted from 0) has {together}: none can be held out for validation.",
                "Add images of it, or take the class out.",
            )
        count = min(max(round(share * len(names)), 1), len(names) - 1)
        chosen = np.random.default_rng([seed, int(label)]).permutation(len(names))[:count]
        held_out[members] = np.isin(unit_of, chosen)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
