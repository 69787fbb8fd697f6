"""Settings that follow from pretrained weights, if they are not set."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from catro_deploy.data.form import ImageForm
from catro_deploy.models.huggingface import folder_of
from catro_deploy.models.preprocessor import no_such_preparation, prepared_by_library
from catro_deploy.models.pretrained import Pretrained, fetch, pretrained
from catro_deploy.progress import Progress
from catro_deploy.settings import Settings

__all__ = ["published_accuracy", "with_preprocessing", "with_pretrained"]

# Largest allowed difference, of 255, between two ways to preprocess a smooth image: a shift by one pixel gives 1 or 2.
MOST_LEVELS = 4


def with_pretrained(settings: Settings, progress: Progress) -> Settings:
    """``settings`` in which ``[model] weights`` decide the checkpoint and what ``with_preprocessing`` sets.

    Their file is downloaded if it is not in the library's cache. A model ``transformers:FOLDER`` has its own weights.

    Raises:
        ModelError: there are no such weights, or they cannot be downloaded.
    """
    settings = with_preprocessing(settings)
    if not settings.model.has_preprocessing or "checkpoint" in settings.model.model_fields_set:
        return settings
    found = pretrained(settings.model.name, settings.model.weights)
    model = settings.model.model_copy(update={"checkpoint": _fetched(found, progress)})
    return settings.model_copy(update={"model": model})


def with_preprocessing(settings: Settings) -> Settings:
    """``settings`` in which ``[model] weights`` decide how images are prepared, if that is not set.

    If the user gives no checkpoint, they also decide which classes the network has. The files of a model
    ``transformers:FOLDER`` are used in the same way.

    Raises:
        ModelError: there are no such weights, or images cannot be prepared as the model's folder specifies.
    """
    if not settings.model.has_preprocessing:
        return settings
    found = pretrained(settings.model.name, settings.model.weights)
    if folder := folder_of(settings.model.name):
        _require_equal_pixels(found, folder)
    model: dict[str, Any] = {"mean": found.mean, "std": found.std}
    if "checkpoint" not in settings.model.model_fields_set:
        model["classes"] = found.classes
    data: dict[str, Any] = {"interpolation": found.interpolation}
    if "size" not in settings.data.model_fields_set:  # how images are resized belongs to the size
        data |= {"size": found.size, "resize": found.resize}
    return settings.model_copy(
        update={"model": _completed(settings.model, model), "data": _completed(settings.data, data)}
    )


def published_accuracy(settings: Settings) -> float | None:
    """The published accuracy of the network's weights on ImageNet, a fraction; None for other weights."""
    if settings.model.weights is None:
        return None
    found = pretrained(settings.model.name, settings.model.weights)
    return found.accuracy if settings.model.checkpoint == found.file else None


def _completed(section: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - a section of Settings
    """``section`` with those of ``values`` that were not set."""
    return section.model_copy(update={key: one for key, one in values.items() if key not in section.model_fields_set})


def _fetched(found: Pretrained, progress: Progress) -> Path:
    if found.url and not found.file.is_file():
        progress.note(f"downloading {found.url}")
    return fetch(found)


def _require_equal_pixels(found: Pretrained, folder: Path) -> None:
    """Compare the preprocessing by ``found`` with that of the image processor in ``folder``.

    Raises:
        ModelError: they differ: the processor does something that settings cannot express, such as swapping colours.
    """
    across, down = np.meshgrid(np.linspace(0, 255, 320), np.linspace(0, 255, 256))
    image = Image.fromarray(np.stack([across, down, 255 - down], axis=2).astype(np.uint8))
    theirs = prepared_by_library(folder, image)
    form = ImageForm(found.size, len(found.mean), found.resize, found.interpolation)
    ours = np.asarray(form.applied(image), dtype=np.float32).transpose(2, 0, 1)
    mean, std = (np.asarray(values, dtype=np.float32).reshape(-1, 1, 1) * 255 for values in (found.mean, found.std))
    if theirs.shape != ours.shape or np.abs(theirs * std + mean - ours).max() > MOST_LEVELS:
        raise no_such_preparation(folder, "its image processor does more than resize, crop, scale and normalise")
