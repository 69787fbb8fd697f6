"""Records as JSON files; they are written and read only here."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from catro_deploy.errors import RunFolderError
from catro_deploy.files import write_text
from catro_deploy.records.base import Record

__all__ = ["content_of", "read_record", "record_of", "record_text", "write_record"]

R = TypeVar("R", bound=Record)

_ADAPTERS: dict[Any, Any] = {}
"""The adapter of each kind of record, created on first use."""


def record_text(record: Record) -> str:
    """Return ``record`` as the JSON text of its file.

    Raises:
        ValueError: the record contains a value that ``read_record`` would reject.
    """
    adapter = _adapter(type(record))
    text: str = adapter.dump_json(record, indent=1, warnings="none").decode() + "\n"
    adapter.validate_json(text)
    return text


def write_record(record: Record, path: Path) -> None:
    """Write ``record`` as JSON atomically.

    Raises:
        ValueError: the record contains a value that ``read_record`` would reject.
        StorageError: the file cannot be written.
    """
    write_text(path, record_text(record))


def content_of(record: Record) -> dict[str, Any]:
    """Return ``record`` as plain Python objects with the content of its file."""
    content: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json")
    return content


def read_record(kind: type[R], path: Path, hint: str) -> R:
    """Read a record of this ``kind`` from an existing file.

    Raises:
        RunFolderError: the file is damaged or has another format; ``hint`` says how to recreate it.
    """
    return record_of(kind, path.read_bytes(), str(path), hint)


def record_of(kind: type[R], text: bytes | str, where: str, hint: str) -> R:
    """Parse a record of this ``kind`` from JSON ``text``; error messages name its source ``where``.

    Raises:
        RunFolderError: the text is not such a record, or has another format.
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    try:
        content = from_json(text)
    except ValueError as error:
        raise RunFolderError(f"{where} is not valid JSON ({error}).", hint) from None
    if not isinstance(content, dict):
        raise RunFolderError(f"{where} contains a {type(content).__name__} instead of an object.", hint)
    if content.get("format") != kind.FORMAT:
        found = content.get("format", "none")
        raise RunFolderError(f"{where}: format is {found!r}; this version reads {kind.FORMAT} only.", hint)
    for key in _not_finite(content, ()):
        raise RunFolderError(f"{where}: {_dotted(key)} must be a finite number.", hint)
    try:
        record: R = _adapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunFolderError(f"{where}: {_dotted(first['loc'])}: {_allowed(first)}.", hint) from None
    return record


def _adapter(kind: type[Record]) -> Any:  # noqa: ANN401 - a TypeAdapter of pydantic, which is slow to import
    from pydantic import TypeAdapter

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _allowed(error: Any) -> str:  # noqa: ANN401 - ErrorDetails of pydantic
    """What is allowed at the location of ``error``, in words."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]).removesuffix(".")
    return {
        "unexpected_keyword_argument": "there is no such key in this format",
        "missing": "this key is required",
        "dataclass_type": "must be an object",
    }.get(error["type"], str(error["msg"]))


def _dotted(key: tuple[int | str, ...]) -> str:
    return ".".join(map(str, key)) or "the file"


def _not_finite(content: object, key: tuple[int | str, ...]) -> Iterator[tuple[int | str, ...]]:
    """Yield the keys of all non-finite numbers in ``content``, nested ones included."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _not_finite(value, (*key, name))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from _not_finite(value, (*key, place))
    elif isinstance(content, float) and not math.isfinite(content):
        yield key
