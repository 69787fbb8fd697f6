"""The pruned network in int8: calibrated, tested layer by layer, and quantised as far as accuracy allows."""

import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.calibration import Int8Recipe
from catro_deploy.data.base import MemorySplit, Split
from catro_deploy.errors import DataError, ModelError
from catro_deploy.files import write_bytes
from catro_deploy.precision.fp16 import write_fp16
from catro_deploy.precision.fused import fused
from catro_deploy.precision.graph import layers_of, present
from catro_deploy.precision.int8 import Form, for_scales_in_half, form_of, quantised, seven_bits
from catro_deploy.precision.ranges import Range, find_ranges
from catro_deploy.precision.samples import draw_samples, pixels_sha256
from catro_deploy.precision.sensitivity import fewest_kept, logits_of, sensitivities
from catro_deploy.progress import Progress
from catro_deploy.records import History, Plan, Qat, Quantized, Sensitivity
from catro_deploy.targets import Target

__all__ = ["Int8Images", "Int8Job", "Retrain", "calibration_samples", "write_int8"]

Floats = NDArray[np.float32]
Proto = Any
"""An onnx.ModelProto, which has no type annotations."""

Retrain = Callable[[Proto, Proto], tuple[Proto, History]]
"""From a network in float32 and the same in integers to one in float32 that is less sensitive to quantisation."""

# Share of a layer's values outside their range above which there is a remark.
MUCH = 0.01


@dataclass(frozen=True)
class Int8Images:
    """Normalised images: some to calibrate with, and others, with ``labels`` or what serves as labels, to evaluate on.

    Single layers are tried on the evaluation images at the indices ``few``.
    """

    calibration: Floats
    validation: Floats
    labels: NDArray[np.int64]
    few: NDArray[np.int64]


@dataclass(frozen=True)
class Int8Job:
    """How a network is written in integers.

    Attributes:
        target: what the network will run on.
        recipe: how to quantize.
        images: for calibration and evaluation.
        keeps: whether the logits for the validation images are within the limits.
        instruction_sets: those of the processor that will run it.
        retrain: quantisation-aware fine-tuning, if layers would have to stay in floating point.
    """

    target: Target
    recipe: Int8Recipe
    images: Int8Images
    keeps: Callable[[Floats], bool]
    instruction_sets: Collection[str]
    retrain: Retrain | None = None


@dataclass(frozen=True)
class _Quantiser:
    """Quantises ``source``, the network in float32, except for the excluded layers."""

    source: Proto
    ranges: dict[str, Range]
    form: Form
    recipe: Int8Recipe
    narrow: bool

    @property
    def layers(self) -> list[str]:
        return list(layers_of(self.source.graph))

    @property
    def fixed(self) -> list[str]:
        """The layers that the recipe keeps in floating point."""
        return present(self.recipe.keep, self.source.graph)

    def network(self, *, keep: Collection[str] = (), only: Collection[str] = ()) -> Proto:
        by_channel = self.recipe.weights == "channel"
        return quantised(
            self.source, self.ranges, self.form, keep=keep, only=only, by_channel=by_channel, narrow=self.narrow
        )

    def remarks(self) -> list[str]:
        """What a user should know about the calibration, one sentence each."""
        found = []
        if self.narrow:
            found.append(
                "This processor has no VNNI: weights have seven bits, since sums of eight-bit products would overflow."
            )
        if dead := [name for name in self._outputs() if self._of(name).low == self._of(name).high]:
            found.append(f"On all calibration images the values of {', '.join(dead)} are 0.")
        if cut := [name for name in self._outputs() if self._of(name).clipped > MUCH]:
            found.append(f"More than {MUCH:.0%} of the values of {', '.join(cut)} are clipped to their range.")
        if unknown := [name for name in self.recipe.keep if name not in self.layers]:
            found.append(f"The recipe keeps layers that this network does not have: {', '.join(unknown)}.")
        return found

    def _outputs(self) -> dict[str, str]:
        """The name of each layer's output."""
        outputs = {node.name: str(node.output[0]) for node in self.source.graph.node}
        return {layer: outputs[node] for layer, node in layers_of(self.source.graph).items()}

    def _of(self, layer: str) -> Range:
        return self.ranges[self._outputs()[layer]]


@dataclass(frozen=True)
class _Attempt:
    """The result of a quantisation of all layers except ``kept``; None: no layer can be quantised."""

    quantiser: _Quantiser
    sensitivity: list[Sensitivity]
    kept: list[str] | None


def calibration_samples(train: Split, plan: Plan, recipe: Int8Recipe) -> MemorySplit:
    """The training images that ``recipe`` specifies.

    Raises:
        DataError: a class has none, or they are not those of the run that wrote the recipe.
    """
    samples = draw_samples(train, plan.classes, recipe.samples_of_each(len(plan.classes)), recipe.seed)
    found = pixels_sha256(samples)
    if recipe.images_sha256 not in ("", found):
        raise DataError(
            f"These are not the images that the recipe was made with: their hash begins with {found[:12]}, "
            f"the recipe's with {recipe.images_sha256[:12]}.",
            "Point [data] at the images of that run, or take images_sha256 out of the recipe.",
        )
    return samples


def write_int8(source: Path, path: Path, job: Int8Job, progress: Progress) -> Quantized:
    """Write the float32 network ``source`` to ``path`` in int8, in the target's form; return the result.

    Layers are kept in floating point, the most sensitive first, until the limits are met. If that would need all of
    them, nothing is written, and ``kept`` is None.

    Raises:
        ModelError: the network is quantised already.
        NumericsError: one of its values is not finite on a calibration image, or ``retrain`` diverged.
    """
    images, retrain = job.images, job.retrain
    quantiser = _quantiser(source, job.target, job.recipe, images.calibration, job.instruction_sets)
    best = _attempt(quantiser, images, job.keeps, progress)
    learnt: Qat | None = None
    remarks = quantiser.remarks()
    if retrain is not None and best.kept != quantiser.fixed:
        try:
            trained, history = retrain(quantiser.source, quantiser.network(keep=quantiser.fixed))
        except ModelError as error:
            remarks.append(error.problem)
        else:
            again = _attempt(replace(quantiser, source=trained), images, job.keeps, progress)
            better = again.kept is not None and (best.kept is None or len(again.kept) < len(best.kept))
            learnt = Qat(history, _names(best.kept), _names(again.kept), better)
            best = again if better else best
    found = Quantized(
        kept=_names(best.kept),
        form=quantiser.form.name,
        seven_bit_weights=quantiser.narrow,
        sensitivity=tuple(best.sensitivity),
        remarks=tuple(remarks),
        qat=learnt,
    )
    if best.kept is None:
        return found
    _write(best.quantiser.network(keep=best.kept), path, job.target, images.calibration)
    return replace(found, operators=dict(fused(path, job.target.runtime).operators))


def _names(layers: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if layers is None else tuple(layers)


def _attempt(
    quantiser: _Quantiser, images: Int8Images, keeps: Callable[[Floats], bool], progress: Progress
) -> _Attempt:
    free = [layer for layer in quantiser.layers if layer not in quantiser.fixed]
    with progress.task("Trying layers in int8", len(free)) as task:
        tried = sensitivities(
            quantiser.source,
            free,
            lambda only: quantiser.network(only=only),
            images.validation[images.few],
            images.labels[images.few],
            task.advance,
        )
    kept = [*quantiser.fixed, *(one.layer for one in tried)]

    def suffices(count: int) -> bool:
        return keeps(logits_of(quantiser.network(keep=kept[: len(quantiser.fixed) + count]), images.validation))

    count = fewest_kept(len(free) - 1, suffices) if free else None
    return _Attempt(quantiser, tried, None if count is None else kept[: len(quantiser.fixed) + count])


def _quantiser(
    source: Path, target: Target, recipe: Int8Recipe, images: Floats, instruction_sets: Collection[str]
) -> _Quantiser:
    import onnx

    proto, form = onnx.load(source), form_of(target.runtime)
    if target.precision == "fp16":
        proto = for_scales_in_half(proto)
    ranges = find_ranges(proto, images, recipe.method, recipe.percentile)
    return _Quantiser(proto, ranges, form, recipe, narrow=target.kind == "cpu" and seven_bits(instruction_sets))


def _write(network: Proto, path: Path, target: Target, images: Floats) -> None:
    """Write ``network`` to ``path``; what is not in int8 is in half precision if that is the target's precision."""
    if target.precision != "fp16":
        write_bytes(path, network.SerializeToString())
        return
    with tempfile.TemporaryDirectory(prefix="catro-deploy-") as folder:
        mixed = Path(folder, path.name)
        mixed.write_bytes(network.SerializeToString())
        write_fp16(mixed, path, images)
