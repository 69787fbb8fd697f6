"""Frozen dataclasses as JSON and back. Fields are validated on reading; an error names the field.

A field may be a bool, int, float, str, Any, Optional, a Tuple, a Mapping from str, or a dataclass. A field that is None
by default is left out if it is None. Types are written so that Python 3.8 can evaluate them.
"""

from __future__ import annotations

import json
import sys
from collections import abc
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Dict, List, Optional, Type, TypeVar, Union, get_args, get_origin, get_type_hints

from catro_deploy.errors import MessageError

__all__ = ["FORMAT", "Tagged", "parse", "read", "to_json"]

FORMAT = 5
"""Version of jobs and results. Sides with different versions reject each other's messages."""

T = TypeVar("T")

SAME_VERSION = "Use the same version of catro-deploy on both machines. Make a bundle again with: catro-deploy bundle"
LONGEST_VALUE = 60
PLAIN = {bool: "true or false", int: "an integer", float: "a finite number", str: "a string"}


class Tagged:
    """A dataclass of one of several kinds: its JSON has the kind, as ``KEY: NAME``, and the format, if any."""

    KEY: ClassVar[str]
    NAME: ClassVar[str]
    KINDS: ClassVar[Dict[str, Type[Any]]]
    FORMAT: ClassVar[Optional[int]] = None

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401 - of other base classes
        super().__init_subclass__(**options)
        if "NAME" in vars(cls):
            cls.KINDS[cls.NAME] = cls


def to_json(value: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    """Convert ``value``, a dataclass or what one may contain, to the types of JSON."""
    if is_dataclass(value):
        content = {one.name: getattr(value, one.name) for one in fields(value)}
        written = {name: to_json(content[name]) for name in content if not _is_left_out(value, name, content[name])}
        return {**_tags(type(value)), **written}
    if isinstance(value, abc.Mapping):
        return {key: to_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(one) for one in value]
    return value


def parse(text: Union[str, bytes], what: str) -> Any:  # noqa: ANN401 - what JSON can hold
    """The content of a JSON text; ``what`` names it in errors.

    Raises:
        MessageError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise MessageError(f"The {what} is not JSON: {error}.", SAME_VERSION) from None
    except RecursionError:
        raise MessageError(f"The {what} is nested too deeply.", SAME_VERSION) from None


def read(kind: Type[T], data: Any, what: str = "message") -> T:  # noqa: ANN401 - what JSON can hold
    """Read ``data`` as the dataclass ``kind``; ``what`` names it in errors if it has no name itself.

    Raises:
        MessageError: a field is missing, not known, or of a type that is not allowed; or the format is different.
    """
    found: T = _read_dataclass(kind, data, what, "")
    return found


def _read_dataclass(kind: Any, data: Any, what: str, where: str) -> Any:  # noqa: ANN401
    if not isinstance(data, dict):
        raise _wrong(what, where, data, kind)
    if issubclass(kind, Tagged):
        kind = _chosen(kind, data)
        what, where = f"{kind.KEY} {kind.NAME}", ""
        data = {key: value for key, value in data.items() if key not in _tags(kind)}
    allowed = {one.name: one for one in fields(kind)}
    inside = f"{where}." if where else ""
    if unknown := [name for name in data if name not in allowed]:
        known = ", ".join(allowed) or "none"
        problem = f"The {what} has an unknown field {inside}{unknown[0]}. Allowed fields: {known}."
        raise MessageError(problem, SAME_VERSION)
    hints = _hints(kind)
    content = {}
    for name, one in allowed.items():
        if name in data:
            content[name] = _read_value(hints[name], data[name], what, inside + name)
        elif _is_required(one):
            raise MessageError(f"The {what} lacks {inside}{name}: {_described(hints[name])}.", SAME_VERSION)
    return kind(**content)


def _read_value(kind: Any, data: Any, what: str, where: str) -> Any:  # noqa: ANN401
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return data
    if origin is Union:
        return None if data is None else _read_value(inner[0], data, what, where)
    if is_dataclass(origin or kind):
        return _read_dataclass(origin or kind, data, what, where)
    if origin is abc.Mapping and isinstance(data, dict):
        return {key: _read_value(inner[1], one, what, f"{where}.{key}") for key, one in data.items()}
    if origin is tuple and isinstance(data, list):
        kinds = list(inner[:1]) * len(data) if inner[-1] is ... else list(inner)
        if len(kinds) == len(data):
            return tuple([_read_value(kinds[i], data[i], what, f"{where}[{i}]") for i in range(len(data))])
    if kind is float and type(data) in (int, float) and abs(data) <= sys.float_info.max:
        return float(data)
    if kind is not float and type(data) is kind:
        return data
    raise _wrong(what, where, data, kind)


def _chosen(kind: Any, data: Dict[str, Any]) -> Any:  # noqa: ANN401
    """The one of the kinds of ``kind`` that ``data`` holds."""
    if kind.FORMAT is not None and data.get("format") != kind.FORMAT:
        raise MessageError(
            f"The {kind.KEY} has format {_short(data.get('format'))}; this version of catro-deploy reads format "
            f"{kind.FORMAT}.",
            SAME_VERSION,
        )
    names: List[str] = [kind.NAME] if hasattr(kind, "NAME") else list(kind.KINDS)
    name = data.get(kind.KEY)
    if not isinstance(name, str) or name not in names:
        raise MessageError(f"The {kind.KEY} {_short(name)} is not one of: {', '.join(names)}.", SAME_VERSION)
    return kind.KINDS[name]


def _tags(kind: Any) -> Dict[str, Any]:  # noqa: ANN401
    """What the JSON of ``kind`` has besides its fields."""
    if not issubclass(kind, Tagged):
        return {}
    return {kind.KEY: kind.NAME, **({} if kind.FORMAT is None else {"format": kind.FORMAT})}


@lru_cache(None)
def _hints(kind: Any) -> Dict[str, Any]:  # noqa: ANN401
    return get_type_hints(kind)


def _is_required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _is_left_out(value: Any, name: str, content: Any) -> bool:  # noqa: ANN401
    return content is None and type(value).__dataclass_fields__[name].default is None


def _wrong(what: str, where: str, data: Any, kind: Any) -> MessageError:  # noqa: ANN401
    field = f"{where} = " if where else "the content "
    return MessageError(f"The {what} has {field}{_short(data)}. Expected {_described(kind)}.", SAME_VERSION)


def _described(kind: Any) -> str:  # noqa: ANN401
    """What is allowed for a field of this type, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return "any value"
    if origin is Union:
        return f"{_described(inner[0])}, or null"
    if origin is tuple:
        return f"a list; each item is {_described(inner[0])}" + ("" if inner[-1] is ... else f"; {len(inner)} items")
    if origin is abc.Mapping:
        return f"an object; each value is {_described(inner[1])}"
    return PLAIN.get(kind) or f"an object with {', '.join(one.name for one in fields(origin or kind)) or 'a name'}"


def _short(data: Any) -> str:  # noqa: ANN401
    text = json.dumps(data)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
