"""The budgets of ``[prune]``, parsed where settings are read."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator
from pydantic_core import PydanticKnownError

from catro_deploy.budget import Budget, Budgets
from catro_deploy.errors import BudgetError
from catro_deploy.settings.section import AUTO, REPEATABLE

__all__ = ["BudgetSetting", "EnergySetting", "MemorySetting", "SizeSetting"]


def _parse(value: Any) -> Budgets | Literal["auto"]:  # noqa: ANN401 - whatever a file holds
    """Parse budgets from one or several texts; parsed budgets are returned unchanged.

    Raises:
        BudgetError: a text cannot be parsed, or auto is combined with others.
    """
    if isinstance(value, Budgets):
        return value
    value = _number_as_text(value)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise PydanticKnownError("string_type")
    parts = [part.strip() for text in texts for part in text.split(",")]
    if AUTO not in parts:
        return Budgets.parse(parts)
    if len(parts) > 1:
        raise BudgetError(
            "The budget auto is found by a search, and cannot be combined with other latency budgets.",
            "Leave out the other latency budgets; --max-size and --max-memory can be combined with it.",
        )
    return AUTO


def _parse_limit(value: Any, of: Literal["size", "memory", "energy"]) -> Budget | None:  # noqa: ANN401 - as above
    if value is None or isinstance(value, Budget):
        return value
    value = _number_as_text(value)
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    return Budget.parse(value, of)


def _number_as_text(value: Any) -> Any:  # noqa: ANN401 - as above
    """A number as text, which is then rejected because it has no unit; anything else unchanged."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_WRITTEN = PlainSerializer(lambda limit: None if limit is None else str(limit), return_type=str | None)

BudgetSetting = Annotated[
    Budgets | Literal["auto"], PlainValidator(_parse), PlainSerializer(str, return_type=str), REPEATABLE
]
"""The budgets, or ``auto`` to search for one. Written as text, always in the same form."""
SizeSetting = Annotated[Budget | None, PlainValidator(partial(_parse_limit, of="size")), _WRITTEN]
MemorySetting = Annotated[Budget | None, PlainValidator(partial(_parse_limit, of="memory")), _WRITTEN]
EnergySetting = Annotated[Budget | None, PlainValidator(partial(_parse_limit, of="energy")), _WRITTEN]
