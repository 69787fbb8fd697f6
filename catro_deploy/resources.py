"""Data files that come with the package, and the user's own: targets, measuring protocols, quantization recipes.

A wheel carries the package's files under ``catro_deploy/_data``; in a checkout they are in folders at its root.
Users keep their own targets in the platform's folder for settings.
"""

import os
from pathlib import Path
from typing import Literal

from catro_deploy.errors import UsageError
from catro_deploy.suggestions import did_you_mean

__all__ = [
    "Kind",
    "Origin",
    "cache_folder",
    "config_folder",
    "find",
    "folder",
    "is_path",
    "names",
    "origin",
    "own_folder",
    "profiles_folder",
]

Kind = Literal["targets", "calibration/int8", "calibration/latency", "calibration/profile", "calibration/roofline"]
Origin = Literal["shipped", "yours", "file"]

PACKAGE = Path(__file__).parent
PROGRAM = "catro-deploy"
NOUNS: dict[Kind, str] = {
    "targets": "target",
    "calibration/int8": "quantization recipe",
    "calibration/latency": "measuring protocol",
    "calibration/profile": "profiling protocol",
    "calibration/roofline": "roofline",
}
# A user's protocol with the name of a shipped one would make different results look comparable.
KINDS_OF_USERS: tuple[Kind, ...] = ("targets",)
ALIKE = 0.5


def folder(kind: Kind) -> Path:
    """The folder that holds the package's files of ``kind``."""
    installed = PACKAGE / "_data" / kind
    return installed if installed.is_dir() else PACKAGE.parent / kind


def own_folder(kind: Kind) -> Path | None:
    """The folder that holds the user's own files of ``kind``, whether or not it exists; None if there can be none."""
    settings = config_folder()
    return settings / kind if settings and kind in KINDS_OF_USERS else None


def config_folder() -> Path | None:
    """The user's folder for catro-deploy: ``CATRO_CONFIG``, else the platform's folder for settings.

    None for a user without a home.
    """
    from platformdirs import user_config_path

    if chosen := os.environ.get("CATRO_CONFIG"):
        return Path(chosen).absolute()
    try:
        return user_config_path(PROGRAM, appauthor=False, roaming=True)
    except RuntimeError:
        return None


def profiles_folder() -> Path:
    """Where latency profiles are kept."""
    return cache_folder() / "latency"


def cache_folder() -> Path:
    """Where files that can be recreated are kept: ``CATRO_CACHE``, else the platform's place for caches.

    Raises:
        UsageError: the user has no home, and no folder is named.
    """
    from platformdirs import user_cache_path

    if chosen := os.environ.get("CATRO_CACHE"):
        return Path(chosen).absolute()
    try:
        return user_cache_path(PROGRAM, appauthor=False)
    except RuntimeError:
        raise UsageError(
            "This user has no home, so there is no cache folder.", "Set the variable CATRO_CACHE to a folder."
        ) from None


def names(kind: Kind) -> tuple[str, ...]:
    """The names that ``find`` knows, sorted."""
    return tuple(sorted(_files(kind)))


def origin(kind: Kind, path: Path) -> Origin:
    """Whether ``path``, returned by ``find``, came with the package, is one of the user's, or was given as a path."""
    if path.parent == own_folder(kind):
        return "yours"
    return "shipped" if path.parent == folder(kind) else "file"


def is_path(name: str) -> bool:
    """Whether ``name`` is the path of a user's file: it contains a slash or ends with ``.toml``."""
    return "/" in name or name.endswith(".toml")


def find(kind: Kind, name: str, error: type[UsageError] = UsageError) -> Path:
    """The file of a known ``name``, or the file at that path.

    A user's file takes precedence over the package's of the same name.

    Raises:
        UsageError: there is no such file; raised as ``error``, the class that fits the caller.
    """
    known = _files(kind)
    if is_path(name):
        own = Path(name)
        if not own.is_file():
            raise error(f"There is no file {own}.", f"Give the path of a TOML file, or one of: {', '.join(known)}.")
        return own
    if name not in known:
        near = did_you_mean(name, known, alike=ALIKE)
        raise error(
            f"There is no {NOUNS[kind]} {name!r}. {near}".rstrip(),
            f"Known names: {', '.join(known)}. The path of your own TOML file works as well.",
        )
    return known[name]


def _files(kind: Kind) -> dict[str, Path]:
    """Name to file, sorted; the user's own take precedence over the package's."""
    own = own_folder(kind)
    places = [folder(kind), *([own] if own else [])]
    found = {path.stem: path for place in places for path in place.glob("*.toml")}
    return dict(sorted(found.items()))
