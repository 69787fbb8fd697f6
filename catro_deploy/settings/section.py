"""What all sections of ``catro.toml`` share."""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["AUTO", "IMAGENET", "REPEATABLE", "TARGETS_OWN", "TRANSFORMERS", "UNLABELLED", "Compute", "Section"]

Compute = Literal["auto", "cpu", "cuda"]

TARGETS_OWN = "target"
"""The ``precision`` that is the target's own."""
AUTO: Final = "auto"
"""The ``budget`` that is searched: the smallest latency that ``[verify] max_drop`` allows."""

REPEATABLE = object()
"""Marks a setting that is one text, whose flag may be given several times: the texts are joined by commas."""

IMAGENET = "imagenet1k"
"""The ``classes`` of a model that was trained on ImageNet's 1,000 classes."""

TRANSFORMERS = "transformers:"
"""Prefix of the ``name`` of a model in a folder as Hugging Face transformers saves it."""

UNLABELLED = "images"
"""The ``name`` of the dataset whose images have no labels."""


class Section(BaseModel):
    """A table of ``catro.toml``: unknown keys are refused. validators are built on first use."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
