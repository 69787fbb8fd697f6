"""Data files that come with the package: descriptions of devices and measuring protocols.

A wheel carries them under ``catro_deploy/_data``; in a checkout they lie in folders of that name at its root.
"""

import difflib
from pathlib import Path
from typing import Literal

from catro_deploy.errors import UsageError

__all__ = ["Kind", "find", "names"]

Kind = Literal["targets", "calibration/latency"]

PACKAGE = Path(__file__).parent
NOUNS: dict[Kind, str] = {"targets": "target", "calibration/latency": "measuring protocol"}


def folder(kind: Kind) -> Path:
    """The folder that holds the files of ``kind``."""
    installed = PACKAGE / "_data" / kind
    return installed if installed.is_dir() else PACKAGE.parent / kind


def names(kind: Kind) -> tuple[str, ...]:
    """The names that ``find`` knows, sorted."""
    return tuple(sorted(path.stem for path in folder(kind).glob("*.toml")))


def find(kind: Kind, name: str, error: type[UsageError] = UsageError) -> Path:
    """The file of a known ``name``, or the user's own file if ``name`` holds a slash or ends with ``.toml``.

    Raises:
        UsageError: there is no such file; raised as ``error``, the class that fits the caller.
    """
    if "/" in name or name.endswith(".toml"):
        own = Path(name)
        if not own.is_file():
            raise error(
                f"There is no file {own}.",
                f"Give the path of a TOML file, or one of: {', '.join(names(kind))}.",
            )
        return own
    known = names(kind)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        raise error(
            f"There is no {NOUNS[kind]} {name!r}." + (f" Did you mean {near[0]}?" if near else ""),
            f"Known are: {', '.join(known)}. A path to a TOML file of your own works as well.",
        )
    return folder(kind) / f"{name}.toml"
