"""Read batches ahead: in worker processes if images are decoded from files, else in a thread."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from catro_deploy.data.base import MemorySplit, Split
from catro_deploy.data.files import FileSplit, as_files
from catro_deploy.errors import CatroError, FaultError

__all__ = ["read_ahead", "read_batches", "workers_for"]

MOST_WORKERS = 8
PREFETCHED = 2  # batches per worker, besides the one in progress
SHARED_MEMORY = Path("/dev/shm")


def read_batches(split: Split, parts: Sequence[NDArray[np.int64]], pin: bool = False) -> Iterator[torch.Tensor]:
    """Yield the images of ``split`` at each of ``parts``: uint8, (n, c, h, w).

    Raises:
        DataError: an image is missing or cannot be decoded.
        FaultError: a worker process was killed from outside.
    """
    if isinstance(split, MemorySplit):
        return (split.images(part) for part in parts)
    files = as_files(split)
    if files is None or files.remembered:
        return read_ahead(split.images, parts, 0, pin)
    return read_ahead(files.images, parts, workers_for(files, len(parts[0]) if len(parts) else 0), pin)


def read_ahead(
    read: Callable[[NDArray[np.int64]], torch.Tensor],
    parts: Sequence[NDArray[np.int64]],
    workers: int,
    pin: bool = False,
) -> Iterator[torch.Tensor]:
    """Yield ``read`` of each of ``parts``, in order, prefetched while the caller computes; ``pin`` pins them for a GPU.

    Without ``workers``, one thread reads one batch ahead.

    Raises:
        FaultError: a worker process was killed from outside.
    """
    if not workers:
        yield from _by_thread(read, parts, pin)
        return
    loader = DataLoader(
        _Batches(read, parts),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=PREFETCHED,
        pin_memory=pin,
        generator=torch.Generator(),  # it must not advance the caller's generator
        multiprocessing_context="fork",  # other methods would import PyTorch again in each epoch
    )
    try:
        for found in loader:
            if isinstance(found, CatroError):
                raise found
            yield found
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise FaultError(
            f"A process that decodes images was killed: {error}",
            "If memory is short, lower workers in [data] of catro.toml, or batch_size.",
        ) from error


def workers_for(files: FileSplit, batch: int) -> int:
    """The number of processes that decode batches of this size: as in the settings, else the cores of this process.

    Batches are returned through shared memory. Containers often limit it, which limits the number of processes, too.
    """
    if not batch or not SHARED_MEMORY.is_dir():
        return 0
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = max(1, len(os.sched_getaffinity(0)) // here)
    wanted = min(MOST_WORKERS, cores) if files.workers is None else files.workers
    height, width = files.form.size
    waiting_bytes = (PREFETCHED + 1) * batch * files.form.channels * height * width * here
    return min(wanted, shutil.disk_usage(SHARED_MEMORY).free // waiting_bytes)


class _Batches(Dataset[torch.Tensor | CatroError]):
    """A batch as one item, so that one worker decodes all of it. Errors are returned: raised ones lose their hint."""

    def __init__(self, read: Callable[[NDArray[np.int64]], torch.Tensor], parts: Sequence[NDArray[np.int64]]) -> None:
        self._read, self._parts = read, parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, place: int) -> torch.Tensor | CatroError:
        try:
            return self._read(self._parts[place])
        except CatroError as error:
            return error


def _by_thread(
    read: Callable[[NDArray[np.int64]], torch.Tensor], parts: Sequence[NDArray[np.int64]], pin: bool
) -> Iterator[torch.Tensor]:
    if not len(parts):
        return

    def one(part: NDArray[np.int64]) -> torch.Tensor:
        pixels = read(part)
        return pixels.pin_memory() if pin else pixels

    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(one, parts[0])
        for part in parts[1:]:
            found, coming = coming.result(), reader.submit(one, part)
            yield found
        yield coming.result()
