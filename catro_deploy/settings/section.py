"""What all sections of ``catro.toml`` share."""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

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
