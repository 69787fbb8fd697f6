"""Records as JSON files: written and read here, and nowhere else."""

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
"""Of each kind of record, once it was used."""


def record_text(record: Record) -> str:
    """``record`` as the JSON text of its file.

    Raises:
        ValueError: it holds something that ``read_record`` would refuse.
    """
    adapter = _adapter(type(record))
    text: str = adapter.dump_json(record, indent=1, warnings="none").decode() + "\n"
    adapter.validate_json(text)
    return text


def write_record(record: Record, path: Path) -> None:
    """Write ``record`` as JSON, whole or not at all.

    Raises:
        ValueError: it holds something that ``read_record`` would refuse.
        StorageError: the file cannot be written.
    """
    write_text(path, record_text(record))


def content_of(record: Record) -> dict[str, Any]:
    """``record`` as plain objects, as in its file."""
    content: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json")
    return content


def read_record(kind: type[R], path: Path, hint: str) -> R:
    """Read a record of this ``kind`` from its file, which exists.

    Raises:
        RunFolderError: it is damaged, or of another format; ``hint`` says how to make it again.
    """
    return record_of(kind, path.read_bytes(), str(path), hint)


def record_of(kind: type[R], text: bytes | str, where: str, hint: str) -> R:
    """The record of this ``kind`` from JSON ``text``; errors name the place ``where``.

    Raises:
        RunFolderError: it is none, or of another format.
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    try:
        content = from_json(text)
    except ValueError as error:
        raise RunFolderError(f"{where} is not valid JSON ({error}).", hint) from None
    if not isinstance(content, dict):
        raise RunFolderError(f"{where} holds a {type(content).__name__} where an object must be.", hint)
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
    """The allowed value at the place of ``error``."""
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
    """The keys of numbers below ``content`` that are not finite."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _not_finite(value, (*key, name))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from _not_finite(value, (*key, place))
    elif isinstance(content, float) and not math.isfinite(content):
        yield key
