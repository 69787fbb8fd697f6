"""Durations as settings, parsed where they are read."""

from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator
from pydantic_core import PydanticKnownError

from catro_deploy.errors import SettingsError
from catro_deploy.units import amount_text, read_amount

__all__ = ["DurationSetting"]


def _parse(value: Any) -> float | None:  # noqa: ANN401 - whatever a file holds
    """Parse a duration into seconds; a parsed one is returned unchanged.

    Raises:
        SettingsError: the text cannot be parsed, or is not above 0 and at most a day.
    """
    if value is None or isinstance(value, float):
        return value
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    seconds = read_amount(value, "s")
    if seconds is None or not 0 < seconds <= 86400:
        raise SettingsError(f"{value!r} is not a duration of at most one day.", "Write it as 120s or 5min.")
    return seconds


DurationSetting = Annotated[
    float | None,
    PlainValidator(_parse),
    PlainSerializer(lambda s: None if s is None else amount_text(s, "s"), return_type=str | None),
]
"""Seconds, written as text: ``120s``."""
