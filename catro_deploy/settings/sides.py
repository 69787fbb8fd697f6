"""Sizes of images in settings: ``224``, ``160x224`` or ``[160, 224]``, height first."""

import re
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

__all__ = ["ResizeSetting", "SizeSetting", "size_of", "size_text"]

LARGEST = 2**16
FORM = re.compile(r"(\d+)(?:\s*x\s*(\d+))?")


def _sides(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - whatever a file holds
    """Parse one side or two.

    Raises:
        ValueError: it is neither.
    """
    given = value
    if isinstance(value, str) and (found := FORM.fullmatch(value.strip())):
        value = tuple(int(side) for side in found.groups() if side is not None)
    sides = (value,) if isinstance(value, int) else tuple(value) if isinstance(value, list | tuple) else ()
    if len(sides) not in (1, 2) or not all(type(side) is int for side in sides):
        raise ValueError(f"a size is written as 224, or as 160x224 for height and width, not as {given!r}")
    if not all(0 < side <= LARGEST for side in sides):
        raise ValueError(f"a size is at least 1 and at most {LARGEST}, not {given}")
    return sides


def size_of(value: Any) -> tuple[int, int]:  # noqa: ANN401
    """Height and width of ``224``, ``160x224`` or ``[160, 224]``.

    Raises:
        ValueError: it is none of these.
    """
    sides = _sides(value)
    return sides[0], sides[-1]


def _resize(value: Any) -> int | tuple[int, int]:  # noqa: ANN401
    sides = _sides(value)
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _written(value: int | tuple[int, int]) -> int | str:
    return value if isinstance(value, int) else "x".join(map(str, value))


def _size_written(value: tuple[int, int]) -> int | str:
    return _written(value[0] if value[0] == value[1] else value)


def size_text(value: tuple[int, int]) -> str:
    """A height and width as written in settings: ``224`` or ``160x224``."""
    return str(_size_written(value))


SizeSetting = Annotated[tuple[int, int], PlainValidator(size_of), PlainSerializer(_size_written, return_type=int | str)]
"""Height and width; one number means both."""

ResizeSetting = Annotated[
    int | tuple[int, int], PlainValidator(_resize), PlainSerializer(_written, return_type=int | str)
]
"""The shorter side, or height and width."""
