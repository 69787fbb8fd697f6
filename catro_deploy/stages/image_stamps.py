"""What stands for the images among the inputs of a stage: a hash of the names, sizes and labels of their files."""

import hashlib
import os
from functools import cache
from typing import TYPE_CHECKING, Literal

from catro_deploy.settings import DataSettings, Settings

if TYPE_CHECKING:
    from catro_deploy.data import Split

__all__ = ["SEEN", "SplitName", "forget_stamps", "image_stamps"]

SplitName = Literal["train", "validation", "test"]

SEEN: tuple[SplitName, ...] = ("train", "validation")
"""The images that networks are made from; the others are for final figures only."""
MOST_SIZED = 100_000
"""Of a split with more files, sizes are left out: on a network drive, finding them would take minutes."""


def image_stamps(settings: Settings, splits: tuple[SplitName, ...]) -> dict[str, str]:
    """A hash for each of ``splits``; none if the images are not in files.

    The hashes are kept until ``forget_stamps`` is called. Another content of the same size is not noticed: all files
    would have to be read.

    Raises:
        DataError: the images are missing.
    """
    if ":" in settings.data.name or settings.data.name == "signs":  # which would have to be made or drawn
        return {}
    # Groups may name the network's classes, and do not change which images there are.
    data = settings.data.model_copy(update={"groups": {}})
    found = _stamps(data.model_dump_json(), len(settings.model.mean))
    return {split: found[split] for split in splits}


def forget_stamps() -> None:
    """Have the next call of ``image_stamps`` look at the files again."""
    _stamps.cache_clear()


@cache
def _stamps(data: str, channels: int) -> dict[SplitName, str]:
    from catro_deploy.data import open_dataset

    settings = DataSettings.model_validate_json(data)
    dataset = open_dataset(settings, (1, 1), channels)
    splits: dict[SplitName, Split] = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    return {name: _stamp(split, f"{settings.root}/") for name, split in splits.items()}


def _stamp(split: "Split", root: str) -> str:
    from catro_deploy.data.files import as_files
    from catro_deploy.data.sources import PackedImage, size_of

    files = as_files(split)
    assert files is not None
    is_sized = len(files.paths) <= MOST_SIZED
    digest = hashlib.blake2b(files.labels.tobytes(), digest_size=16)
    for source in files.paths:
        place = f"{source.shard} {source.offset}" if isinstance(source, PackedImage) else str(source)
        digest.update(os.fsencode(f"{place.removeprefix(root)} {size_of(source) if is_sized else ''}\n"))
    return digest.hexdigest()
