"""The pruned network in other precisions: written, evaluated on validation images, and timed, both on the device."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.agent.jobs import FactsJob, Job, R
from catro_deploy.agent.results import FactsResult
from catro_deploy.assessment.basis import Basis, Limits, basis_of
from catro_deploy.calibration import load_int8_recipe, load_latency_protocol
from catro_deploy.data.base import MemorySplit, Subset, is_unlabelled
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import DataError
from catro_deploy.files import write_text
from catro_deploy.graph.onnx.interface import Interface, plain_copy, write_interface
from catro_deploy.graph.onnx.ir import write_ir
from catro_deploy.precision.fp16 import write_fp16
from catro_deploy.precision.samples import evenly, pixels_sha256
from catro_deploy.progress import Progress
from catro_deploy.records import Candidate, History, Plan, Precision, Quantized
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.settings.labels import require_distillation
from catro_deploy.stages.integers import Int8Images, Int8Job, calibration_samples, write_int8
from catro_deploy.stages.logits import dataset_of, logits_errand, logits_on_device, packed
from catro_deploy.stages.qat import qat
from catro_deploy.stages.served import model_of
from catro_deploy.statistics.agreement import accuracy_of, agreement_of
from catro_deploy.statistics.divergence import scaled_kl_nats
from catro_deploy.targets import Target
from catro_deploy.toml import toml_value
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import bench_job, speedup_of, use_of
from catro_deploy.transports.sides import takes_ir

__all__ = ["Candidates"]

Floats = NDArray[np.float32]
Proto = Any
"""An onnx.ModelProto, which has no type annotations."""

# For loading the models, and the bootstrap.
GRACE_S = 600


class Candidates:
    """The candidates of a run on one device."""

    def __init__(
        self, settings: Settings, run: RunFolder, plan: Plan, target: Target, device: str, progress: Progress
    ) -> None:
        """Open the images.

        Raises:
            SettingsError: the recipe or protocol does not exist; or images have no labels, and [quantize] qat_epochs
                would need them.
            DataError: the dataset is not the plan's, or there are no validation images.
        """
        self._settings, self._run, self._plan, self._progress = settings, run, plan, progress
        self._target, self._device, self._use = target, device, use_of(target, settings)
        self._recipe = load_int8_recipe(settings.quantize.recipe)
        self._protocol = load_latency_protocol(settings.bench.protocol)
        dataset = dataset_of(settings, plan)
        if not dataset.labelled:
            require_distillation(settings.finetune, settings.quantize.qat_epochs)
        self._train = Subset(dataset.train, plan.class_indices)
        self._validation = Subset(dataset.validation, plan.class_indices)
        if not len(self._validation.labels):
            raise DataError(
                "There are no validation images of these classes, so no precision can be evaluated.",
                "Hold some out ([data] validation), or serve the target's own precision: --precision target",
            )

    @property
    def validation_images(self) -> int:
        """The number of validation images."""
        return len(self._validation.labels)

    @cached_property
    def facts(self) -> FactsResult:
        """Facts about the device and its runtime."""
        return self._result(FactsJob(self._use.runtime), ())

    @cached_property
    def own(self) -> dict[str, Floats]:
        """Logits of ``original`` and ``pruned`` in the target's own precision, for the validation images."""
        return self._logits({name: (name, self._target.precision) for name in ("original", "pruned")})

    @cached_property
    def basis(self) -> Basis:
        """The basis on which candidates are evaluated."""
        return basis_of(self.own["original"], self._validation.labels, self._settings.quantize.max_drop)

    def _logits(self, networks: Mapping[str, tuple[str, Precision]]) -> dict[str, Floats]:
        """Logits for the validation images, by key, of ``original`` or ``pruned`` in a precision."""
        run, plan, settings = self._run, self._plan, self._settings
        models = {key: model_of(run, *of) for key, of in networks.items()}
        errand = logits_errand("Classifying the validation images", settings, run, plan, self._use, models)
        with (
            self._progress.task(errand.title, len(models) * self.validation_images) as task,
            packed(run, self._validation, plan, settings.verify.batch_size),
        ):
            logits, _ = logits_on_device(run, errand, self._device, len(plan.classes), task, self._progress.note)
        return logits

    def divergence(self, logits: Floats) -> float | None:
        """``scaled_kl_nats`` of ``logits`` from the original's; None where divergence is not used."""
        return None if self.basis.change_cost_nats is None else scaled_kl_nats(self.own["original"], logits)

    def make(self, precision: Precision, limits: Limits) -> Quantized:
        """Write the network in ``precision`` and return how it was made: ``kept`` are the parts that stay in more bits.

        In integers the network is within ``limits``; if that is impossible, ``kept`` is None.
        """
        path, source = self._run.onnx("pruned", precision), self._run.require(self._run.pruned_onnx, "export")
        if precision == "fp32":
            return Quantized(kept=())
        with plain_copy(source) as plain:
            made = self._converted(precision, plain, path, limits)
        if made.kept is not None:
            write_interface(path, Interface.of(self._settings.export, self._plan.mean, self._plan.std))
            if takes_ir(self._settings):
                write_ir(path)
        return made

    def _converted(self, precision: Precision, source: Path, path: Path, limits: Limits) -> Quantized:
        """Write ``source``, in float32 and without preprocessing, to ``path`` in half precision or integers."""
        plan = self._plan
        samples = calibration_samples(self._train, plan, self._recipe)
        calibration = normalise(samples.pixels, plan.mean, plan.std).numpy()
        if precision == "fp16":
            return Quantized(kept=tuple(write_fp16(source, path, calibration)))
        expected = self.basis.expected
        validation = self._validation.images(np.arange(len(expected)))
        per_class = max(1, self._recipe.sensitivity_images // len(plan.classes))
        images = Int8Images(
            calibration,
            normalise(validation, plan.mean, plan.std).numpy(),
            expected,
            evenly(expected, per_class, self._recipe.seed),
        )
        path.unlink(missing_ok=True)
        sets = self.facts.device.instruction_sets or ()
        retrain = self._retrained if self._settings.quantize.qat_epochs else None

        def keeps(logits: Floats) -> bool:
            return self.basis.keeps(self.basis.score(logits), self.divergence(logits), limits)

        job = Int8Job(self._target, self._recipe, images, keeps, sets, retrain)
        made = write_int8(source, path, job, self._progress)
        for remark in made.remarks:
            self._progress.note(remark)
        self._keep_recipe(samples, made.kept)
        return replace(made, calibration_images=len(samples.labels), images_sha256=pixels_sha256(samples))

    def measured(self, precisions: Sequence[Precision]) -> dict[Precision, Candidate]:
        """The pruned network's score in each of ``precisions``, and its latency."""
        logits = self._logits({precision: ("pruned", precision) for precision in precisions})
        with self._progress.task("Measuring each precision", len(precisions)) as task:
            found = {}
            for precision in precisions:
                found[precision] = self._candidate(precision, logits[precision])
                task.advance()
        return found

    def _retrained(self, source: Proto, integers: Proto) -> tuple[Proto, History]:
        images = (self._train, self._validation)
        return qat(source, integers, images, self._settings, self._run, self._plan, self._progress)

    def _candidate(self, precision: Precision, logits: Floats) -> Candidate:
        models = {
            "original": model_of(self._run, "original", self._target.precision),
            "pruned": model_of(self._run, "pruned", precision),
        }
        job = bench_job(self._use, self._protocol, models)
        result = self._result(job, [model.file for model in models.values()])
        found, labels = agreement_of(self.own["original"], logits), self._validation.labels
        return Candidate(
            score=self.basis.score(logits),
            agreement=found.share,
            mean_kl_nats=found.mean_kl_nats,
            speedup=speedup_of(result),
            us=result.pruned.p50_us,
            scaled_kl_nats=self.divergence(logits),
            accuracy=None if is_unlabelled(labels) else accuracy_of(logits, labels),
        )

    def _keep_recipe(self, samples: MemorySplit, kept: Sequence[str] | None) -> None:
        """Write a recipe that repeats this quantisation."""
        keep = self._recipe.keep if kept is None else list(kept)
        again = self._recipe.model_copy(update={"keep": keep, "images_sha256": pixels_sha256(samples)})
        lines = (f"{key} = {toml_value(value)}\n" for key, value in again.model_dump().items())
        write_text(self._run.calibration, "".join(lines))

    def _result(self, job: Job[R], files: Sequence[str]) -> R:
        limit_s = self._protocol.warmup_s + self._protocol.limit_s + GRACE_S
        return run_job(self._device, job, self._run.path, files, limit_s=limit_s, note=self._progress.note)
