"""Map the labels of a dataset, whose classes are some of a network's, to indices of the network's logits."""

import copy
import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from catro_deploy.data.base import Dataset, Split
from catro_deploy.data.files import FileSplit
from catro_deploy.errors import DataError
from catro_deploy.suggestions import did_you_mean
from catro_deploy.toml import toml_value

if TYPE_CHECKING:
    import torch

__all__ = ["relabelled"]

REPORTED, SUGGESTED = 5, 3
WORDNET_ID = re.compile(r"n\d{8}")


class _Relabelled:
    """The images of ``split`` with other ``labels``."""

    def __init__(self, split: Split, labels: NDArray[np.int64]) -> None:
        self.labels = labels
        self._split = split

    def images(self, indices: Sequence[int] | NDArray[np.int64]) -> "torch.Tensor":
        """The images at ``indices``."""
        return self._split.images(indices)


def relabelled(
    dataset: Dataset, names: Sequence[str], ids: Mapping[str, int], labels: Mapping[str, int | str]
) -> Dataset:
    """Return ``dataset`` with a network's classes ``names``; each of its own that is renamed becomes a group of one.

    ``ids`` are other names of the network's classes, each with its index, such as WordNet ids. ``labels`` give the
    network's class for a class of the dataset, by name, id or index. A class without an entry is matched by its own
    name, which may also be an id or an index. Case is ignored, and hyphens and underscores match spaces.

    Raises:
        DataError: a class of the dataset matches none or several of the network's, two match the same one, or
            ``labels`` name a class that the dataset does not have.
    """
    for own in labels:
        if own not in dataset.classes:
            meant = did_you_mean(own, dataset.classes, otherwise=f"It has: {_some(dataset.classes)}")
            raise DataError(f"[data] labels name {own!r}, which {dataset.name} does not have.", meant)
    known = _Index(names, ids)
    found = {own: known.find(labels.get(own, own)) for own in dataset.classes}
    if unknown := [own for own, index in found.items() if index is None]:
        raise DataError(_unknown(unknown, dataset, known, labels), _hint(unknown[0], names, ids))
    indices = [index for index in found.values() if index is not None]
    for index, times in Counter(indices).items():
        if times > 1:
            same = " and ".join(repr(own) for own, other in found.items() if other == index)
            raise DataError(
                f"{same} of {dataset.name} are the same class of the network: {names[index]}.",
                "Put their images into one folder, or correct [data] labels.",
            )
    groups = {name: tuple(indices[member] for member in members) for name, members in dataset.groups.items()}
    alone = {own: (index,) for own, index in zip(found, indices, strict=True) if own != names[index]}
    mapped = np.array(indices, np.int64)
    return dataclasses.replace(
        dataset,
        classes=tuple(names),
        groups={**alone, **groups},
        train=_with_labels(dataset.train, mapped),
        validation=_with_labels(dataset.validation, mapped),
        test=_with_labels(dataset.test, mapped),
    )


class _Index:
    """Finds a class by its name, its id or its index."""

    def __init__(self, names: Sequence[str], ids: Mapping[str, int]) -> None:
        self._count = len(names)
        self._exact = {**ids, **{name: index for index, name in enumerate(names)}}
        plain = Counter(map(_plain, self._exact))
        self._alike = {_plain(name): index for name, index in self._exact.items() if plain[_plain(name)] == 1}

    def find(self, item: int | str) -> int | None:
        if isinstance(item, str):
            if item in self._exact:
                return self._exact[item]
            if _plain(item) in self._alike:
                return self._alike[_plain(item)]
            if not (item.isascii() and item.isdigit()):
                return None
        return int(item) if 0 <= int(item) < self._count else None

    def nearest(self, item: str) -> str:
        """Suggest names with the words of ``item``, else the most similar ones; for an index, the valid indices."""
        if item.lstrip("-").isdigit():
            return f"its indices are 0 to {self._count - 1}"
        words = set(_plain(item).split())
        having = [name for name in self._alike if words and words <= set(name.split())]
        if having:
            return f"Did you mean {' or '.join(having[:SUGGESTED])}?"
        return did_you_mean(_plain(item), self._alike, alike=0.5)


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _with_labels(split: Split, mapped: NDArray[np.int64]) -> Split:
    labels = mapped[split.labels]
    if isinstance(split, FileSplit):  # other modules recognise it by its files
        same = copy.copy(split)
        same.labels = labels
        return same
    return _Relabelled(split, labels)


def _unknown(unknown: Sequence[str], dataset: Dataset, known: _Index, labels: Mapping[str, int | str]) -> str:
    lines = []
    for own in unknown[:REPORTED]:
        item = labels.get(own, own)
        given = "" if item == own else f", given as {item!r}"
        lines.append(f"  {own}{given}: {known.nearest(str(item))}".rstrip(": "))
    more = [f"  ... and {len(unknown) - REPORTED} more"] if len(unknown) > REPORTED else []
    title = f"{len(unknown)} of the {len(dataset.classes)} classes of {dataset.name} match no class of the network:"
    return "\n".join([title, *lines, *more])


def _hint(own: str, names: Sequence[str], ids: Mapping[str, int]) -> str:
    if WORDNET_ID.fullmatch(own) and not ids:
        return "timm has the list of WordNet ids: pip install 'catro-deploy[timm]'"
    return (
        f"Rename the folders, or say which class each is, by name, id or index (0 to {len(names) - 1}), in [data] of "
        f'catro.toml: labels = {toml_value({own: names[0]})}, or in a file of two columns: labels = "labels.csv".'
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
