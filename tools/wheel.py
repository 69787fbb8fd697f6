"""Checks that a wheel holds every file that the package reads: ``python -m tools.wheel dist``."""

import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
DATA = {"targets": "catro_deploy/_data/targets", "calibration": "catro_deploy/_data/calibration"}
PACKAGE = "catro_deploy"


def missing_files(wheel: Path) -> list[str]:
    """Files of the checkout that belong in ``wheel`` but are missing."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    return sorted(expected_files() - names)


def expected_files() -> set[str]:
    """Names in the wheel: all of the package, its targets and its calibration tables."""
    found = {name.replace(folder, place, 1) for folder, place in DATA.items() for name in _files(folder)}
    return found | _files(PACKAGE)


def _files(folder: str) -> set[str]:
    paths = (path for path in (CHECKOUT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(CHECKOUT).as_posix() for path in paths}


if __name__ == "__main__":
    (wheel,) = Path(sys.argv[1]).glob("*.whl")
    missing = missing_files(wheel)
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
