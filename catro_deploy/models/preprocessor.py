"""How images are prepared for a network of Hugging Face transformers: ``preprocessor_config.json`` of its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from catro_deploy.errors import ModelError
from catro_deploy.models.huggingface import read_json, transformers_library

__all__ = ["Preparation", "no_such_preparation", "preparation", "prepared_by_library"]

FILE = "preprocessor_config.json"
INTERPOLATIONS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""By Pillow's number, which is the one in the files."""
LARGEST_PIXEL = 255
# From this size on, ConvNeXT's processor resizes images directly to the size, without a crop.
CONVNEXT_WHOLE = 384
HINT = (
    'Write one that prepares images in the same way, such as: {"image_processor_type": "ViTImageProcessor", '
    '"resample": 3, "size": {"height": 224, "width": 224}, "image_mean": [0.485, 0.456, 0.406], '
    '"image_std": [0.229, 0.224, 0.225]}.'
)


@dataclass(frozen=True)
class Preparation:
    """Preprocessing of images, with the attributes of ``Pretrained``."""

    size: tuple[int, int]
    resize: int | tuple[int, int] | None
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


def preparation(folder: Path) -> Preparation:
    """How the image processor in ``folder`` prepares images.

    Raises:
        ModelError: transformers is not installed, the folder has no image processor, or settings cannot express it.
    """
    values = _processor(folder).to_dict()
    size, resize = _sides(values, folder)
    interpolation = INTERPOLATIONS.get(int(values.get("resample", -1)))
    if interpolation is None:
        raise no_such_preparation(folder, f"it resizes by method {values.get('resample')}")
    mean, std = _normalisation(values)
    return Preparation(size, resize, interpolation, mean, std)


def prepared_by_library(folder: Path, image: Image.Image) -> npt.NDArray[np.float32]:
    """``image`` (RGB) as the image processor in ``folder`` prepares it, (channels, height, width).

    Raises:
        ModelError: see ``preparation``.
    """
    return np.asarray(_processor(folder)(image, return_tensors="np")["pixel_values"][0], dtype=np.float32)


def no_such_preparation(folder: Path, reason: str) -> ModelError:
    """The error for images that cannot be prepared as ``folder`` specifies, with the ``reason``."""
    return ModelError(f"Images cannot be prepared as {folder / FILE} specifies: {reason}.", HINT)


def _processor(folder: Path) -> Any:  # noqa: ANN401 - a class of transformers
    library = transformers_library()
    read_json(folder / FILE, HINT)
    try:
        return library.AutoImageProcessor.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, backend="pil"
        )
    except Exception as error:  # a processor may raise anything for its configuration
        raise ModelError(f"transformers cannot load {folder / FILE}: {type(error).__name__}: {error}", HINT) from error


def _sides(values: Mapping[str, Any], folder: Path) -> tuple[tuple[int, int], int | tuple[int, int] | None]:
    """Height and width of the network's input, and the size that images are resized to before the centre crop."""
    size, share = values.get("size") or {}, values.get("crop_pct")
    edge: Any = size.get("shortest_edge")
    exact = _both(size)
    crop = _both(values.get("crop_size")) if values.get("do_center_crop") else None
    if not values.get("do_resize", True) or (edge is None and exact is None) or size.get("longest_edge"):
        raise no_such_preparation(folder, "it does not resize them to one shorter side, or height and width")
    if share is not None and edge is not None:  # ConvNeXT, which then crops to the shorter side, or PoolFormer
        if crop is None and edge >= CONVNEXT_WHOLE:
            return (edge, edge), None
        crop, edge = crop or (edge, edge), int(edge / share)
    least = exact or (edge, edge)
    if crop is None and exact is None:
        raise no_such_preparation(folder, "it does no centre crop, so their sizes differ")
    if crop is None:
        return least, None
    if least[0] < crop[0] or least[1] < crop[1]:
        raise no_such_preparation(folder, f"it crops {crop[0]}x{crop[1]} pixels from a smaller image")
    return crop, exact or edge


def _both(size: Mapping[str, Any] | None) -> tuple[int, int] | None:
    return (size["height"], size["width"]) if size and size.get("height") and size.get("width") else None


def _normalisation(values: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation for pixels in 0..1 that are equivalent to all of the processor's arithmetic."""
    rescales, normalises = values.get("do_rescale", True), values.get("do_normalize", True)
    factor = LARGEST_PIXEL * values["rescale_factor"] if rescales else LARGEST_PIXEL
    offset = 1 if rescales and values.get("rescale_offset") else 0
    mean, std = (_of_each_channel(values.get(key)) for key in ("image_mean", "image_std"))
    divisors = [
        one * two
        for one, two in zip(
            std if normalises else (1.0,) * len(std),
            std if values.get("include_top") else (1.0,) * len(std),
            strict=True,
        )
    ]  # EfficientNet's processor divides once more
    centres = mean if normalises else (0.0,) * len(mean)
    return (
        tuple((centre + offset) / factor for centre in centres),
        tuple(divisor / factor for divisor in divisors),
    )


def _of_each_channel(value: Any) -> tuple[float, ...]:  # noqa: ANN401 - from a file
    return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),) * 3
