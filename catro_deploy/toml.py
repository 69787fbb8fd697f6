"""TOML beyond the standard library: safe reading, writing, comparing, and explaining mistakes."""

import errno
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from catro_deploy.files import require_regular

__all__ = ["parse_toml", "read_toml", "toml_differences", "toml_mistake", "toml_tables", "toml_text", "toml_value"]

QUOTES = " '\""
LARGEST_BYTES = 2**24


def read_toml(path: Path) -> dict[str, Any]:
    """The document in the file ``path``.

    Raises:
        OSError: see ``toml_text``.
        UnicodeDecodeError: it is not UTF-8.
        tomllib.TOMLDecodeError: it is not TOML, or nested too deeply.
    """
    return parse_toml(toml_text(path))


def toml_text(path: Path) -> str:
    """The text of a file of settings.

    Raises:
        OSError: it cannot be read, is not a regular file (a pipe or a device may have no end), or is too large.
        UnicodeDecodeError: it is not UTF-8.
    """
    require_regular(path)
    if path.is_file() and path.stat().st_size > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST_BYTES >> 20} MiB")
    return path.read_text(encoding="utf-8-sig")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse ``text`` as a TOML document.

    Raises:
        tomllib.TOMLDecodeError: it is not TOML, or nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("Nested too deeply (at line 1, column 1)") from None


def toml_tables(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """A TOML document with one ``[section]`` for each of ``tables``."""
    sections = []
    for name, values in tables.items():
        lines = [f"{key} = {toml_value(value)}" for key, value in values.items()]
        sections.append("\n".join([f"[{name}]", *lines]) + "\n")
    return "\n".join(sections)


def toml_value(value: bool | int | float | str | Path | Sequence[Any] | Mapping[str, Any]) -> str:
    """One value on one line; a mapping becomes an inline table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        # JSON's strings are TOML's basic strings, except for one control character that JSON does not escape.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(v)}" for key, v in value.items()) + "}"
    return "[" + ", ".join(map(toml_value, value)) + "]"


def toml_differences(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """``section.key`` with both values as text, for each key that differs between two documents of sections."""
    for section in dict.fromkeys([*before, *after]):
        old, new = before.get(section, {}), after.get(section, {})
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                first, second = (toml_value(table[key]) if key in table else "not set" for table in (old, new))
                yield f"{section}.{key}", first, second


def toml_mistake(text: str, error: tomllib.TOMLDecodeError) -> tuple[str, str]:
    """The line of ``text`` that ``error`` refers to, and the line that was probably meant; empty if there is none."""
    lines = text.splitlines()
    found = re.search(r"at line (\d+)", str(error))
    number = int(found[1]) if found else max((i for i, line in enumerate(lines, 1) if line.strip()), default=1)
    wrong = lines[number - 1].strip() if number <= len(lines) else ""
    if _is_toml(wrong):  # a valid line: a key or a section that occurs twice
        return wrong, ""
    return wrong, next((line for line in _likely(wrong) if line != wrong and _is_toml(line)), "")


def _likely(wrong: str) -> Iterator[str]:
    """What a line with a mistake was probably meant to be, the most likely first."""
    straight = re.sub("[\u201c\u201d\u201e]", '"', wrong)
    yield straight
    if straight.startswith("["):
        yield f"[{straight.strip('[] ')}]"
    line = re.match(r"([\w.-]+)\s*[=:]\s*([^#]*?)\s*(?:#.*)?$", straight)
    if line is None:
        return
    key, value = line.groups()
    yield f"{key} = {value}"
    yield f"{key} = {value.lower()}" if value.lower() in ("true", "false") else wrong
    yield f"{key} = {value.replace(',', '.')}" if re.fullmatch(r"-?\d+,\d+", value) else wrong
    bare = value.strip(QUOTES)
    if value.startswith("["):
        items = [item.strip(QUOTES) for item in value.strip("[] ").split(",")]
        yield f"{key} = {toml_value([_value(item) for item in items if item])}"
    elif "\\" in value:
        yield f"{key} = '{bare}'"
    elif bare:
        yield f"{key} = {toml_value(bare)}"


def _value(text: str) -> Any:  # noqa: ANN401 - whatever TOML can hold
    return parse_toml(f"x = {text}")["x"] if _is_toml(f"x = {text}") else text


def _is_toml(text: str) -> bool:
    try:
        parse_toml(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
