"""Values as TOML: the half of TOML that the standard library leaves out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["toml_tables", "toml_value"]


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
