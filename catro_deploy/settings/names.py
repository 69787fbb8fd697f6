"""Names in settings: lists of them, and files: a network's classes, and their mapping from folders of a dataset."""

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catro_deploy.errors import SettingsError
from catro_deploy.files import require_regular

__all__ = ["read_class_names", "read_labels", "split_names"]

# A name in double quotes, or the text up to the next comma.
NAME = re.compile(r'\s*"([^"]*)"\s*(?:,|$)|([^,]*)(?:,|$)')


def split_names(texts: Sequence[str]) -> list[str]:
    """``["a, b", "3"]`` as ``["a", "b", "3"]``: a class may be named 3, so the data decide whether this is an index.

    A comma between double quotes is part of a name: ``"a, b",c`` has two names.
    """
    parts = [quoted or plain for text in texts for quoted, plain in NAME.findall(text)]
    return [part.strip() for part in parts if part.strip()]


def read_class_names(path: Path) -> list[str] | list[tuple[str, str]]:
    """Read names in the order of the logits: one per line, or JSON: a list, or a map of index to name or [id, name].

    Raises:
        SettingsError: it cannot be read, or an index is missing.
    """
    hint = 'Write one name per line, or JSON: {"0": "tench", ...} or {"0": ["n01440764", "tench"], ...}.'
    text = _text(path, "[model] classes", hint)
    if path.suffix.lower() != ".json":
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}.", hint) from None
    names = _by_index(content, path, hint) if isinstance(content, dict) else content
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    if isinstance(names, list) and all(_is_pair(name) for name in names):
        return [(name[0], name[1]) for name in names]
    raise SettingsError(f"{path} contains no class names.", hint)


def read_labels(path: Path) -> dict[str, str]:
    """Read the network's class for each class of the data: two columns, separated by a comma or a tab.

    Raises:
        SettingsError: it cannot be read, has other columns, or names a class of the data twice.
    """
    hint = "Write one line per folder: its name, a comma or a tab, and the name, id or index of the network's class."
    lines = [line for line in _text(path, "[data] labels", hint).splitlines() if line.strip()]
    rows = [next(csv.reader([line], delimiter="\t" if "\t" in line else ",", skipinitialspace=True)) for line in lines]
    for line, row in zip(lines, rows, strict=True):
        if len(row) != 2 or not all(column.strip() for column in row):
            raise SettingsError(f"{path}: this line does not have two columns: {line!r}", hint)
    pairs = [(folder.strip(), name.strip()) for folder, name in rows]
    for folder, times in Counter(folder for folder, _ in pairs).items():
        if times > 1:
            raise SettingsError(f"{path} names {folder!r} {times} times.", "Keep one line for each folder.")
    return dict(pairs)


def _text(path: Path, setting: str, hint: str) -> str:
    try:
        require_regular(path)
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{setting} names the file {path}, which cannot be read: {error}.", hint) from None


def _by_index(content: dict[str, Any], path: Path, hint: str) -> list[Any]:
    missing = [index for index in range(len(content)) if str(index) not in content]
    if missing:
        raise SettingsError(f"{path} has {len(content)} names, but none for index {missing[0]}.", hint)
    return [content[str(index)] for index in range(len(content))]


def _is_pair(name: object) -> bool:
    return isinstance(name, list) and len(name) == 2 and all(isinstance(part, str) for part in name)
