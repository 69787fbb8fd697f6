"""How near a variant of a pruning is to the original: its outputs on validation images, computed as it would serve."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from catro_deploy import networks
from catro_deploy.calibration import load_int8_recipe
from catro_deploy.data.base import is_unlabelled
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import NumericsError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.precision.graph import present
from catro_deploy.precision.int8 import form_of, quantised
from catro_deploy.precision.ranges import find_ranges
from catro_deploy.precision.sensitivity import logits_of as logits_of_onnx
from catro_deploy.records import Plan, TriedVariant
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages.held_out import HeldOut, logits_of
from catro_deploy.stages.integers import calibration_samples
from catro_deploy.statistics.agreement import accuracy_of, agreement_of
from catro_deploy.statistics.divergence import scaled_kl_nats
from catro_deploy.targets import load_target

__all__ = ["judged"]

Floats = NDArray[np.float32]


def judged(
    tried: TriedVariant,
    folder: RunFolder,
    weights: Literal["pruned", "finetuned"],
    settings: Settings,
    held_out: HeldOut,
) -> TriedVariant:
    """``tried`` with the results of its network, which ``folder`` holds, on the validation images.

    Raises:
        NumericsError: its outputs are not finite.
    """
    network = networks.load(folder, weights=weights)
    if settings.quantize.precision == "int8":
        logits = _in_int8(network, load_plan(folder), settings, held_out)
    else:
        logits = logits_of(network, held_out.images, settings)
    labels, original = held_out.images.labels, held_out.logits
    divergence = scaled_kl_nats(original, logits)
    if divergence is None:
        raise NumericsError("Its outputs are not finite.", "Another variant may work.")
    return replace(
        tried,
        kl_nats=(*tried.kl_nats, divergence),
        agreement=agreement_of(original, logits).share,
        validation_accuracy=None if is_unlabelled(labels) else accuracy_of(logits, labels),
    )


def _in_int8(network: nn.Module, plan: Plan, settings: Settings, held_out: HeldOut) -> Floats:
    """Logits in int8 after calibration; ``quantize`` may later keep more layers in float than the recipe does."""
    import onnx

    recipe, images = load_int8_recipe(settings.quantize.recipe), held_out.images
    samples = calibration_samples(held_out.train, plan, recipe)
    with TemporaryDirectory() as folder:
        file = Path(folder, "float.onnx")
        export_onnx(network.cpu(), plan.input_shape, file, opset=settings.export.opset, metadata={})
        proto = onnx.load(file)
    ranges = find_ranges(
        proto, normalise(samples.pixels, plan.mean, plan.std).numpy(), recipe.method, recipe.percentile
    )
    form = form_of(load_target(settings.prune.target).runtime)
    integers = quantised(proto, ranges, form, keep=present(recipe.keep, proto.graph))
    pixels = images.images(np.arange(len(images.labels)))
    return logits_of_onnx(integers, normalise(pixels, plan.mean, plan.std).numpy())
