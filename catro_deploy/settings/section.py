"""What all sections of ``catro.toml`` share."""

import typing
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

__all__ = ["AUTO", "IMAGENET", "REPEATABLE", "TARGETS_OWN", "TRANSFORMERS", "UNLABELLED", "Compute", "Section"]

Compute = Literal["auto", "cpu", "cuda"]

TARGETS_OWN = "target"
"""The value of ``precision`` for the target's own."""
AUTO: Final = "auto"
"""The value of ``budget`` for a search: the smallest latency that ``[verify] max_drop`` allows."""

REPEATABLE = object()
"""Marks a setting that is one text, whose flag may be given several times: the texts are joined by commas."""

IMAGENET = "imagenet1k"
"""The value of ``classes`` for a model that was trained on ImageNet's 1,000 classes."""

TRANSFORMERS = "transformers:"
"""Prefix of the ``name`` of a model in a folder saved by Hugging Face transformers."""

UNLABELLED = "images"
"""The ``name`` of the dataset of images without labels."""


class Section(BaseModel):
    """A table of ``catro.toml``: unknown keys are rejected, and validators are built on first use."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - whatever a file holds
        """Reject true and false where a number is expected: pydantic would read them as 1 and 0."""
        assert info.field_name is not None
        given = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(one, bool) for one in given) and not _takes_bool(
            cls.model_fields[info.field_name].annotation
        ):
            raise PydanticCustomError("no_switch", "It is not a switch, so true and false are no values of it")
        return value


def _takes_bool(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    return annotation is bool or any(map(_takes_bool, typing.get_args(annotation)))
