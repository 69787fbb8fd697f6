"""The result of ``prune``: the pruned network, and methods to fine-tune, export and save it."""

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Unpack

import torch
from torch import nn

from catro_deploy import networks
from catro_deploy.api.keeping import keep_better_, logits_by, restored_on_failure
from catro_deploy.api.options import FinetuneOptions
from catro_deploy.data.loader import Loader, WantedClasses, image_batches, open_loader
from catro_deploy.errors import CatroWarning, RunFolderError, SettingsError
from catro_deploy.files import as_path, text_hash
from catro_deploy.graph.onnx.export import export_onnx, plan_metadata
from catro_deploy.graph.onnx.interface import Interface, write_interface
from catro_deploy.models.modes import default_modes, evaluated
from catro_deploy.models.saved import save_network
from catro_deploy.progress import Progress, progress_or_silent
from catro_deploy.records import Agreement, History, Plan
from catro_deploy.records.files import record_text
from catro_deploy.report.finetuning import kept_words
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan, save_plan
from catro_deploy.settings import FinetuneSettings, load_settings
from catro_deploy.statistics.agreement import agreement_of
from catro_deploy.training.compute import choose_device
from catro_deploy.training.loader import LoaderJob, fit_loader
from catro_deploy.training.trainable import frozen_words

__all__ = ["PrunedModel"]


@dataclass(frozen=True, eq=False, repr=False)
class PrunedModel:
    """A pruned network, the network that it was cut from, and the plan.

    Attributes:
        model: the pruned network on the CPU: images (n, channels, height, width) to logits (n, wanted classes).
            It is a plain module and may be trained by your own loop.
        original: the unpruned network on the CPU, with only the logits of the wanted classes.
        plan: which channels were kept, why, and what that saved.
    """

    model: nn.Module
    original: nn.Module
    plan: Plan

    def __repr__(self) -> str:
        """A few lines: the network, the request, and the savings."""
        plan = self.plan
        shape = "x".join(map(str, plan.input_shape))
        macs, params = plan.pruned_macs / plan.original_macs, plan.pruned_params / plan.original_params
        lines = [
            f"PrunedModel of {plan.model or type(self.original).__name__}, input {shape}, "
            f"{len(plan.classes)} of {plan.model_classes} classes",
            f"  budget {plan.budget} on {plan.target}, criterion {plan.criterion}",
            f"  MACs {plan.original_macs:,} -> {plan.pruned_macs:,} ({macs:.1%})",
            f"  parameters {plan.original_params:,} -> {plan.pruned_params:,} ({params:.1%})",
        ]
        if plan.latency:
            before, after = plan.latency.original_us, plan.latency.predicted_us
            how = "estimated" if plan.latency.how == "estimate" else "predicted"
            lines.append(f"  latency, {how}: {before:.0f} us -> {after:.0f} us ({after / before:.3f}x)")
        return "\n".join(lines)

    @default_modes()
    def finetune(
        self,
        loader: Loader,
        *,
        validation: Loader | None = None,
        progress: Progress | None = None,
        **options: Unpack[FinetuneOptions],
    ) -> History:
        """Train ``model`` in place; afterwards it is on the CPU and in eval mode.

        If training fails or is interrupted, ``model`` has its previous weights.

        Args:
            loader: training images, as for ``prune``: with labels of all classes; unwanted classes are skipped. It is
                iterated once per epoch, and once before to count its images. It may yield images without labels, as
                tensors or 1-tuples: ``model`` then learns only from the outputs of ``original``, with any recipe.
            validation: a loader of images with labels, for the accuracy after each epoch. If training made the network
                worse on them, ``model`` gets back its previous weights, with a ``CatroWarning`` if accuracy was lost.
                None: accuracy is not measured, and the trained weights are kept in any case.
            progress: reports progress; None: no report.
            **options: training options, see ``FinetuneOptions``. Images are augmented by the loader; ``mixup`` and
                ``cutmix`` mix those of its batches.

        Returns:
            Loss and accuracy by epoch; ``validation_accuracy`` is that of the weights that were kept.

        Raises:
            SettingsError: an option is unknown or invalid, or a GPU is requested and there is none; or the loader
                yields images without labels, and ``distill`` is less than 1.
            DataError: a loader yields something else, or fewer than two images of the wanted classes.
            ModelError: no parameter of ``model`` requires gradients, or its forward in training mode fails or returns
                something else than logits.
            NumericsError: training diverged.
            FaultError: the GPU's memory is too small.
        """
        reporter = progress_or_silent(progress)
        _require_effect(options)
        settings = load_settings(None, {"finetune": options}, given_as="keywords").finetune
        with restored_on_failure(self.model) as before:
            return self._trained(before, loader, validation, settings, reporter)

    def _trained(
        self,
        before: nn.Module,
        loader: Loader,
        validation: Loader | None,
        settings: FinetuneSettings,
        progress: Progress,
    ) -> History:
        """Train ``model`` in place; it gets the weights of ``before`` if training made it worse."""
        wanted, shape = WantedClasses(self.plan.model_classes, self.plan.class_indices), self.plan.input_shape
        teacher = copy.deepcopy(self.original) if settings.epochs else None
        job = LoaderJob(self.model, loader, validation, wanted, self.plan, settings, teacher)
        history = fit_loader(job, progress)
        if settings.epochs and (frozen := frozen_words(self.model)):
            warnings.warn(frozen, CatroWarning, stacklevel=4)
        if validation is None or not history.epochs:
            return history
        device = choose_device(settings.compute)
        choice = keep_better_(self.model, before, self.original, validation, wanted, shape, device)
        if choice.kept == "finetuned":
            return history
        if choice.harmful:
            warnings.warn(kept_words(choice), CatroWarning, stacklevel=4)
        else:
            progress.note(kept_words(choice))
        return replace(history, validation_accuracy=history.baseline_validation_accuracy)

    @default_modes()
    def agreement(self, loader: Loader) -> Agreement:
        """Agreement of ``model`` with ``original`` on the images of ``loader``; it needs no labels.

        Args:
            loader: yields normalised images, with or without labels, which are ignored. Use images that neither
                pruning nor fine-tuning has seen.

        Returns:
            The share of images for which both predict the same class, and the mean KL divergence in nats.

        Raises:
            DataError: the loader is empty, or yields something else.
        """
        opened = open_loader(loader)
        images = image_batches(opened.batches, self.plan.input_shape)
        reference, found = logits_by((self.original, self.model), images, torch.device("cpu"))
        return agreement_of(reference, found)

    @default_modes()
    def export(
        self,
        path: Path | str,
        *,
        network: Literal["pruned", "original"] = "pruned",
        opset: int = 18,
        dynamic_batch: bool = False,
        input: Literal["float", "uint8"] = "float",
        layout: Literal["nchw", "nhwc"] = "nchw",
        output: Literal["logits", "softmax"] = "logits",
        top_k: int = 0,
    ) -> Path:
        """Export a network to ONNX, and check that ONNX Runtime computes the same logits from it as PyTorch.

        Its input ``image`` is float32 (batch, channels, height, width), its output ``logits`` (batch, wanted classes),
        unless the arguments say otherwise. The classes, the normalisation as far as it is known, and the plan's hash
        are in the file's metadata.

        Args:
            path: the file.
            network: the pruned one as it is now, or the original to compare it with.
            opset: ONNX opset, 18 to 23.
            dynamic_batch: whether the batch size is dynamic; else it is 1.
            input: "uint8" takes raw pixels, which the network normalises by the plan's mean and std.
            layout: layout of the input; "nhwc" is channels last.
            output: "softmax" returns ``probabilities``.
            top_k: how many of the largest outputs are also returned: ``top_values`` and ``top_classes`` (batch, top_k).

        Returns:
            The path.

        Raises:
            UsageError: an argument is invalid, or raw pixels are to be normalised and the plan has no mean and std.
            ModelError: PyTorch or ONNX cannot express the network.
            NumericsError: ONNX Runtime computes different logits, or NaN.
            StorageError: the file could not be written.
        """
        file = as_path(path, "path")
        networks_by_name = {"pruned": self.model, "original": self.original}
        if network not in networks_by_name:
            raise SettingsError(
                f"There is no network {network!r} to export.",
                'Give "pruned" for the network as it is now, fine-tuned or not, or "original".',
            )
        asked = {"opset": opset, "dynamic_batch": dynamic_batch, "input": input, "layout": layout, "output": output}
        asked["top_k"] = top_k
        settings = load_settings(None, {"export": asked}, given_as="keywords").export
        if settings.input == "uint8" and not self.plan.mean:
            raise SettingsError(
                "The plan has no mean and std, so a network that takes raw pixels cannot be exported.",
                'Give prune() mean and std, or export with input="float".',
            )
        interface = Interface.of(settings, self.plan.mean, self.plan.std)
        metadata = plan_metadata(self.plan, text_hash(record_text(self.plan)), network, interface)
        with evaluated(networks_by_name[network], torch.device("cpu")) as exported:
            export_onnx(
                exported,
                self.plan.input_shape,
                file,
                opset=settings.opset,
                dynamic_batch=settings.dynamic_batch,
                metadata=metadata,
            )
        write_interface(file, interface)
        return file

    def save(self, folder: Path | str) -> Path:
        """Write the plan and the weights of both networks, as they are now, to ``folder``; nothing is pickled.

        ``catro_deploy.load(folder)`` rebuilds the pruned network, ``PrunedModel.load(folder)`` this whole object. A
        network that was pruned without ``name`` needs ``model=`` for that, which provides the architecture, not the
        weights.

        Returns:
            The folder.

        Raises:
            UsageError: it is no path, a file, a run folder of the command line, or a folder of other files.
            StorageError: it could not be written.
        """
        run = RunFolder(as_path(folder, "folder"))
        _require_own(run)
        save_network(self.original, self.plan.input_shape, run.original_weights)
        save_network(self.model, self.plan.input_shape, run.weights)
        save_plan(self.plan, run.plan)
        return run.path

    @classmethod
    def load(cls, folder: Path | str, *, model: nn.Module | Callable[[int], nn.Module] | None = None) -> "PrunedModel":
        """Read what ``save`` wrote, for instance to fine-tune elsewhere or later.

        Args:
            folder: where it was saved.
            model: builds the unpruned network, as for ``catro_deploy.load``.

        Raises:
            UsageError: ``folder`` is not a path.
            RunFolderError: the plan or the weights are missing.
            ModelError: the network cannot be built, or gives other logits than when it was saved.
            CheckpointError: the weights do not match the plan.
        """
        run = RunFolder(as_path(folder, "folder"))
        pruned = networks.load(run, model=model)
        original = networks.load(run, weights="original", model=model)
        return cls(pruned, original, load_plan(run))


def _require_own(run: RunFolder) -> None:
    """Check that a network can be saved in this folder without mixing its files with others.

    Raises:
        RunFolderError: it is a file, a run folder of the command line, or a folder of other files.
    """
    if run.settings.exists():
        raise RunFolderError(f"{run.path} is a run folder of the command line.", "Choose another folder.")
    if not run.path.exists() or run.plan.exists():
        return
    if not run.path.is_dir():
        raise RunFolderError(f"{run.path} is a file; a network is saved in a folder.", "Name a new folder.")
    own = (run.original_weights, run.weights)  # the plan comes last: an earlier save may have been interrupted
    others = [file for file in run.path.iterdir() if file not in own and file.suffix != ".onnx" and file.name[0] != "."]
    if others:
        raise RunFolderError(
            f"The folder {run.path.absolute()} holds other files, such as {min(others).name}.",
            'Name a folder for the network alone, for instance "pruned".',
        )


def _require_effect(options: Iterable[str]) -> None:
    """Reject settings of the command line that have no effect on the batches of a loader.

    Raises:
        SettingsError: there is one among ``options``.
    """
    idle = [name for name in options if name in FinetuneSettings.model_fields.keys() - FinetuneOptions.__annotations__]
    if idle:
        raise SettingsError(
            f"finetune has no option {' or '.join(idle)}: its batches and their augmentation are those of the loader, "
            "and it writes no files.",
            "Leave it out. The images of a batch can be mixed here: mixup, cutmix.",
        )
