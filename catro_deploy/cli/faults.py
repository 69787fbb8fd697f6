"""Unexpected exceptions, turned into errors that say where their traceback is."""

import errno
import tempfile
import time
import traceback
from pathlib import Path

from catro_deploy.errors import CatroError, FaultError, StorageError, UsageError
from catro_deploy.files import FULL, REFUSED

__all__ = ["as_catro_error"]

UNUSABLE = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR}
"""Errors about an impossible path given by the user."""


def as_catro_error(error: Exception, folder: Path | None = None) -> CatroError:
    """Return ``error`` as a message with advice; an internal error's traceback is saved in ``folder``, else in temp."""
    if isinstance(error, CatroError):
        return error
    if isinstance(error, OSError) and error.errno in FULL:
        return StorageError(
            f"{error.filename or 'A file'} could not be written: {error.strerror}.",
            "Free some space, then run the same command again: it continues where it stopped.",
        )
    if isinstance(error, OSError) and error.errno in REFUSED:
        return StorageError(
            f"{error.filename or 'A file'} cannot be accessed: {error.strerror}.",
            "Change its permissions, or choose another folder.",
        )
    if isinstance(error, OSError) and error.errno in UNUSABLE:
        return UsageError(f"{error.filename or 'A path'} cannot be used: {error.strerror}.", "Give another path.")
    if isinstance(error, ValueError) and str(error) == "embedded null byte":
        return UsageError("A path contains a NUL byte.", "Give another path.")
    reason = str(error).strip().splitlines() or [""]
    kept = _keep_traceback(error, folder)
    return FaultError(
        f"{type(error).__name__}: {reason[0]}\nThis is an internal error of catro-deploy. {kept}",
        "What is finished is kept. catro-deploy doctor shows whether the installation is sound.",
    )


def _keep_traceback(error: Exception, folder: Path | None) -> str:
    text = "".join(traceback.format_exception(error))
    name = f"catro-deploy-fault-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    for place in (folder, Path(tempfile.gettempdir())):
        try:
            if place is not None and place.is_dir():
                (place / name).write_text(text, encoding="utf-8")
                return f"The traceback is in {place / name}"
        except OSError:
            continue
    return f"The traceback could not be written to a file:\n{text}"
