"""Settings that follow from pretrained weights, where they are left open."""

from pathlib import Path
from typing import Any

from catro_deploy.models.pretrained import Pretrained, fetch, pretrained
from catro_deploy.progress import Progress
from catro_deploy.settings import Settings
from catro_deploy.settings.section import IMAGENET

__all__ = ["published_accuracy", "with_preprocessing", "with_pretrained"]


def with_pretrained(settings: Settings, progress: Progress) -> Settings:
    """``settings`` in which ``[model] weights`` decide the checkpoint and what ``with_preprocessing`` sets.

    Their file is downloaded if it is not in the library's cache.

    Raises:
        ModelError: there are no such weights, or they cannot be downloaded.
    """
    settings = with_preprocessing(settings)
    if settings.model.weights is None or "checkpoint" in settings.model.model_fields_set:
        return settings
    found = pretrained(settings.model.name, settings.model.weights)
    model = settings.model.model_copy(update={"checkpoint": _fetched(found, progress)})
    return settings.model_copy(update={"model": model})


def with_preprocessing(settings: Settings) -> Settings:
    """``settings`` in which ``[model] weights`` decide how images are prepared, where that is not set.

    Without a checkpoint of the user's they also decide which classes the network has.

    Raises:
        ModelError: there are no such weights.
    """
    if settings.model.weights is None:
        return settings
    found = pretrained(settings.model.name, settings.model.weights)
    model: dict[str, Any] = {"mean": found.mean, "std": found.std}
    if "checkpoint" not in settings.model.model_fields_set:
        model["classes"] = IMAGENET if found.on_imagenet else found.classes
    data: dict[str, Any] = {"interpolation": found.interpolation}
    if "size" not in settings.data.model_fields_set:  # how images are resized belongs to the size
        data |= {"size": found.size, "resize": found.resize}
    return settings.model_copy(
        update={"model": _completed(settings.model, model), "data": _completed(settings.data, data)}
    )


def published_accuracy(settings: Settings) -> float | None:
    """The accuracy on ImageNet that is published for the network's weights, a fraction; None if they are others."""
    if settings.model.weights is None:
        return None
    found = pretrained(settings.model.name, settings.model.weights)
    return found.accuracy if settings.model.checkpoint == found.file else None


def _completed(section: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - a section of Settings
    """``section`` with those of ``values`` that were not set."""
    return section.model_copy(update={key: one for key, one in values.items() if key not in section.model_fields_set})


def _fetched(found: Pretrained, progress: Progress) -> Path:
    if not found.file.is_file():
        progress.note(f"downloading {found.url}")
    return fetch(found)
