"""Name, type, default and meaning of each setting, read from the models for flags, Python API and documentation."""

import functools
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import PlainSerializer
from pydantic.fields import FieldInfo

from catro_deploy.settings.section import REPEATABLE, Section
from catro_deploy.settings.tree import Settings

__all__ = ["Setting", "section_model", "section_settings", "settings_by_place"]


@dataclass(frozen=True)
class Setting:
    """One key of a section.

    Attributes:
        name: the key.
        type: its type, without limits and None.
        default: its default; None if it has no fixed one.
        limits: the range of a number, such as ``0 <= x < 1``; empty if there is none.
        help: what it means, as a sentence without its full stop.
        repeatable: whether its flag may be given several times, although its value is one text.
    """

    name: str
    type: Any
    default: Any
    limits: str
    help: str
    repeatable: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, if they are an enumeration."""
        return typing.get_args(self.type) if typing.get_origin(self.type) is Literal else ()

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return typing.get_origin(self.type) is list


def section_model(name: str) -> type[Section]:
    """The model of a section of ``Settings``."""
    annotation = Settings.model_fields[name].annotation
    candidates = [annotation, *typing.get_args(annotation)]
    return next(c for c in candidates if isinstance(c, type) and issubclass(c, Section))


def section_settings(name: str) -> dict[str, Setting]:
    """All settings of a section, by key, in their order."""
    return {key: _setting(key, field) for key, field in section_model(name).model_fields.items()}


@functools.cache
def settings_by_place() -> dict[str, Setting]:
    """All settings, by ``section.key``."""
    return {
        f"{name}.{key}": setting for name in Settings.model_fields for key, setting in section_settings(name).items()
    }


def _setting(name: str, field: FieldInfo) -> Setting:
    parts = [*field.metadata, *_constraints(field.annotation)]
    limits = _limits(parts)
    default = field.get_default(call_default_factory=True, validated_data={})
    if any(isinstance(one, PlainSerializer) for one in parts):  # parsed from text, and written as text
        shown = None if default is None else str(default)
        return Setting(name, str, shown, limits, field.description or "", REPEATABLE in parts)
    kind = _bare(field.annotation)
    return Setting(name, kind, default, limits, field.description or "", REPEATABLE in parts)


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - any annotation
    """``annotation`` without limits and None."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _bare(arguments[0])
    if origin in (UnionType, typing.Union):
        kinds = [_bare(kind) for kind in arguments if kind is not NoneType]
        return kinds[0] if len(kinds) == 1 else typing.Union[tuple(kinds)]  # noqa: UP007 - of a tuple
    if origin is list:
        return list[_bare(arguments[0])]  # type: ignore[misc]
    return annotation


def _constraints(annotation: Any) -> Iterator[object]:  # noqa: ANN401 - any annotation
    """Limits of the one type in ``annotation`` besides None."""
    for kind in typing.get_args(annotation):
        if typing.get_origin(kind) is Annotated:
            yield from kind.__metadata__


def _limits(constraints: list[object]) -> str:
    """``x > 0``, ``x <= 5`` or, with both ends, ``0 <= x < 1``."""
    least: list[tuple[Any, str, str]] = [(one.gt, "<", ">") for one in constraints if isinstance(one, Gt)]
    least += [(one.ge, "<=", ">=") for one in constraints if isinstance(one, Ge)]
    most = [f"< {one.lt:g}" for one in constraints if isinstance(one, Lt)]
    most += [f"<= {one.le:g}" for one in constraints if isinstance(one, Le)]
    lower = max(least, key=lambda limit: limit[0], default=None)  # samples_per_class: above 0, and at least 2
    if lower and most:
        return f"{lower[0]:g} {lower[1]} x {most[0]}"
    if lower:
        return f"x {lower[2]} {lower[0]:g}"
    return f"x {most[0]}" if most else ""
