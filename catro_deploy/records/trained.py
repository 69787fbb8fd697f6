"""The record of a checkpoint that ``train`` wrote: in its metadata, and next to it as ``<checkpoint>.json``."""

from dataclasses import dataclass
from typing import Any

from catro_deploy.records.base import Number, Positive, Record
from catro_deploy.records.finetune import History

__all__ = ["Trained"]


@dataclass(frozen=True, kw_only=True)
class Trained(History, Record):
    """The network, its input and classes (in the order of its logits), and the history of its training.

    ``fingerprint`` is the hash of all settings that determine the weights; ``settings`` are the training settings.
    """

    model: str
    mean: tuple[Number, ...]
    std: tuple[Positive, ...]
    classes: tuple[str, ...]
    dataset: str
    settings: dict[str, Any]
    fingerprint: str
