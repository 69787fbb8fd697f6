"""The ``budget`` of ``[prune]``, parsed where settings are read."""

from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator
from pydantic_core import PydanticKnownError

from catro_deploy.budget import Budget
from catro_deploy.settings.section import AUTO

__all__ = ["BudgetSetting"]


def _parse(value: Any) -> Budget | Literal["auto"]:  # noqa: ANN401 - whatever a file holds
    """A budget from its text, or one that was parsed.

    Raises:
        BudgetError: the text cannot be read.
    """
    if isinstance(value, Budget):
        return value
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    return AUTO if value == AUTO else Budget.parse(value)


BudgetSetting = Annotated[Budget | Literal["auto"], PlainValidator(_parse), PlainSerializer(str, return_type=str)]
"""What may be used, or ``auto``: that is searched. Written as text, always in the same form."""
