"""Images as a model expects them: normalised here or by the model, channels first or last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from catro_deploy.runtimes import Runner

__all__ = ["normalise", "prepared", "random_images"]


def prepared(pixels: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float], runner: Runner) -> NDArray[Any]:
    """``pixels`` (n, c, h, w) as the model of ``runner`` expects them: raw if it takes uint8, else normalised."""
    images: NDArray[Any] = pixels if runner.input_type == np.uint8 else normalise(pixels, mean, std)
    if runner.metadata.get("layout") == "NHWC":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images)


def normalise(pixels: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """``pixels`` (n, c, h, w) scaled to 0..1, minus ``mean``, divided by ``std`` (c each), in float32.

    The same values as ``data.pixels.normalise``, which needs PyTorch.
    """
    centre, spread = (np.array(values, np.float32).reshape(1, -1, 1, 1) for values in (mean, std))
    images: NDArray[np.float32] = (pixels.astype(np.float32) / np.float32(255) - centre) / spread
    return images


def random_images(runner: Runner, batch: int, generator: np.random.Generator) -> NDArray[Any]:
    """Images for timing the model of ``runner``: random pixels, or normally distributed like normalised images.

    Zeros or denormals can run at a different speed.
    """
    shape = (batch, *runner.image_shape)
    if runner.input_type == np.uint8:
        return generator.integers(0, 256, shape, dtype=np.uint8)
    return generator.standard_normal(shape).astype(np.float32)
