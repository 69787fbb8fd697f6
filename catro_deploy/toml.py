"""What the standard library leaves out of TOML: writing values, and telling how two documents differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["toml_differences", "toml_tables", "toml_value"]


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
        # JSON's strings are TOML's basic strings, but for the one control character that JSON leaves bare.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(v)}" for key, v in value.items()) + "}"
    return "[" + ", ".join(map(toml_value, value)) + "]"


def toml_differences(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """``section.key`` with both values as text, for each key of documents of sections that differs."""
    for section in dict.fromkeys([*before, *after]):
        old, new = before.get(section, {}), after.get(section, {})
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                first, second = (toml_value(table[key]) if key in table else "not set" for table in (old, new))
                yield f"{section}.{key}", first, second
