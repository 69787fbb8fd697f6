"""Logits of many images and classes in unnamed files: memory holds only the part in use."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from catro_deploy.errors import MessageError, StorageError
from catro_deploy.files import naming

__all__ = ["StoredLogits", "stored_logits"]

ITEM_BYTES = 4


@dataclass(frozen=True)
class StoredLogits:
    """The logits of one network, as they arrive."""

    file: IO[bytes]

    def append(self, rows: bytes) -> None:
        """Append rows of little-endian float32. They are written, not mapped, so that a full disk raises an OSError."""
        self.file.write(rows)

    def array(self, images: int, classes: int) -> NDArray[np.float32]:
        """All logits, (images, classes), mapped from the file.

        The array may outlive the file.

        Raises:
            MessageError: there are more or fewer logits.
        """
        self.file.flush()
        size = os.fstat(self.file.fileno()).st_size
        if size != images * classes * ITEM_BYTES:
            rows = f"{size / ITEM_BYTES / classes:g} rows of {classes} logits"
            raise MessageError(f"There are {rows}, but {images} images were sent.", "Run it again on the device.")
        if not size:
            return np.empty((images, classes), np.float32)
        return np.memmap(self.file, "<f4", "r", shape=(images, classes))


@contextmanager
def stored_logits(folder: Path, networks: Iterable[str]) -> Iterator[dict[str, StoredLogits]]:
    """Stores for the logits of each of ``networks``; the files are in ``folder`` and are removed with their last user.

    Raises:
        StorageError: ``folder`` cannot be written.
        OSError: the disk is full; it names the folder.
    """
    with naming(folder), ExitStack() as stack:
        try:
            files = {name: stack.enter_context(tempfile.TemporaryFile(dir=folder)) for name in networks}
        except OSError as error:
            raise StorageError(f"{folder} could not be written: {error.strerror}.", "Free some space.") from None
        yield {name: StoredLogits(file) for name, file in files.items()}
