"""Latency profiles on disk: ``profile.json`` and ``cells.csv``, in a folder named after device and network."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catro_deploy.errors import ProfileError
from catro_deploy.files import require_regular, text_hash, write_text
from catro_deploy.latency.table import Cell, Fit
from catro_deploy.records import CostErrors, Staircase
from catro_deploy.resources import profiles_folder

__all__ = ["LatencyProfile", "damaged_profiles", "load_profile", "profiles_of", "save_profile"]

# 2: in int8, the zero points of layers with more than 1024 channels are 0, as in the networks that are served.
FORMAT = 2
PROFILE = "profile.json"
CELLS = "cells.csv"
AGAIN = "Measure it again: catro-deploy profile --force"
COLUMNS = ("shape", "in_channels", "out_channels", "us", "nodes", "spread", "samples")


@dataclass(frozen=True)
class LatencyProfile:
    """Times of one network's layers on a device.

    ``device`` describes the device and its runtime, ``fingerprint`` is the part that determines times; ``shapes``
    has the shape of each layer, ``staircases`` the cost of each group's widths; ``disagreement`` is the median over all
    networks of the spread of their rounds, as a share. ``original_us`` is the unpruned network's latency as measured
    among them; ``seconds`` is the time on the device; ``protocol`` has the settings of the measurement.
    """

    target: str
    device: Mapping[str, Any]
    fingerprint: Mapping[str, Any]
    network: str
    measured: str
    seconds: float
    networks: int
    disagreement: float
    original_us: float
    shapes: Mapping[str, str]
    staircases: Mapping[str, Staircase]
    fit: Fit
    errors: CostErrors
    cells: Mapping[str, Mapping[tuple[int, int], Cell]]
    protocol: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT


def save_profile(profile: LatencyProfile, folder: Path) -> None:
    """Write ``profile`` into ``folder``: the cells first, then the file with their hash.

    Raises:
        StorageError: the disk is full, or the folder cannot be written.
    """
    from pydantic import TypeAdapter

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for shape, cells in profile.cells.items():
        for (inputs, out), cell in sorted(cells.items()):
            writer.writerow(
                [shape, inputs, out, f"{cell.us:.4g}", f"{cell.nodes:.4g}", f"{cell.spread:.3f}", cell.samples]
            )
    write_text(folder / CELLS, text.getvalue())
    content: dict[str, Any] = TypeAdapter(LatencyProfile).dump_python(profile, mode="json", exclude={"cells"})
    content["cells_sha256"] = text_hash(text.getvalue())
    write_text(folder / PROFILE, json.dumps(content | {"sha256": _hash(content)}, indent=1) + "\n")


def load_profile(folder: Path) -> LatencyProfile:
    """Read the profile in ``folder``.

    Raises:
        ProfileError: it is missing, incomplete, or was changed.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        content = json.loads(_text(folder / PROFILE))
        text, digest = _text(folder / CELLS), _hash(content)
    except (OSError, ValueError, RecursionError) as error:
        raise ProfileError(f"The latency profile in {folder} cannot be read: {error}.", AGAIN) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format", "none") if isinstance(content, dict) else "none"
        raise ProfileError(f"The latency profile in {folder} has format {found}; this version reads {FORMAT}.", AGAIN)
    if content.pop("sha256", None) != digest:
        raise ProfileError(f"{folder / PROFILE} was changed since it was written.", AGAIN)
    if content.pop("cells_sha256", None) != text_hash(text):
        raise ProfileError(f"{folder / CELLS} was truncated or changed since it was measured.", AGAIN)
    try:
        return TypeAdapter(LatencyProfile).validate_python(content | {"cells": _cells(text)})
    except (ValidationError, ValueError, LookupError, TypeError, csv.Error) as error:
        raise ProfileError(f"{folder} is not a latency profile: {error}.", AGAIN) from None


def _text(path: Path) -> str:
    require_regular(path)
    return path.read_text(encoding="utf-8")


def _hash(content: Any) -> str:  # noqa: ANN401 - what JSON can hold
    """The hash of a profile's content, not counting the hash that it may contain."""
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if key != "sha256"}
    return text_hash(json.dumps(content, sort_keys=True))


def profiles_of(target: str) -> Iterator[tuple[Path, LatencyProfile]]:
    """The valid profiles that were measured for ``target``, the newest first."""
    for path in sorted(profiles_folder().glob(f"{target}-*/{PROFILE}"), key=lambda p: -p.stat().st_mtime):
        try:
            profile = load_profile(path.parent)
        except ProfileError:
            continue
        if profile.target == target:
            yield path.parent, profile


def damaged_profiles(target: str) -> list[ProfileError]:
    """Why the other profiles in the folders of ``target`` cannot be used."""
    found = []
    for path in sorted(profiles_folder().glob(f"{target}-*/{PROFILE}")):
        if "-" in path.parent.name.removeprefix(f"{target}-"):  # of a target with a longer name
            continue
        try:
            load_profile(path.parent)
        except ProfileError as error:
            found.append(error)
    return found


def _cells(text: str) -> dict[str, dict[tuple[int, int], Cell]]:
    cells: dict[str, dict[tuple[int, int], Cell]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        cell = Cell(float(row["us"]), float(row["nodes"]), float(row["spread"]), int(row["samples"]))
        cells.setdefault(row["shape"], {})[int(row["in_channels"]), int(row["out_channels"])] = cell
    return cells
