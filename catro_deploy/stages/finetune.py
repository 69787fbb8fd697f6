"""``finetune``: restores the accuracy of the pruned network."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from catro_deploy import networks
from catro_deploy.assessment.keeping import choose
from catro_deploy.data.base import Split, Subset, is_unlabelled
from catro_deploy.files import file_hash
from catro_deploy.models.saved import save_network
from catro_deploy.progress import Progress
from catro_deploy.records import Choice, Finetune, Plan
from catro_deploy.report.finetuning import kept_words
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import save
from catro_deploy.settings import LARGEST_BATCH, OptimiserSettings, Settings, follow_recipe
from catro_deploy.settings.labels import require_distillation
from catro_deploy.stages.held_out import HeldOut
from catro_deploy.stages.images import open_images_of
from catro_deploy.training import TrainingJob, fit
from catro_deploy.training.compute import choose_device
from catro_deploy.training.evaluate import accuracy, predict
from catro_deploy.training.features import features_of
from catro_deploy.training.pixels import decode_once

__all__ = ["finetune"]


def finetune(settings: Settings, run: RunFolder, progress: Progress, held_out: HeldOut | None = None) -> Finetune:
    """Train the pruned network of ``run`` on its classes; write its weights and finetune.json.

    Without labels it learns from the original's outputs. An interrupted fine-tuning resumes after its last
    complete epoch. With 0 epochs, or if training made the network worse on validation images, the weights are those
    after pruning. A search gives ``held_out``, so that images are decoded once for all trainings.

    Raises:
        SettingsError: the images have no labels, and the loss needs them.
        RunFolderError: there is no pruned network yet, or the plan is invalid.
        DataError: the images are missing or broken, or there are fewer than 2.
        CheckpointError: the weights or the state of the interrupted fine-tuning are damaged.
        NumericsError: training diverged; the state after earlier epochs is kept.
    """
    plan = load_plan(run)
    train, validation = (held_out.train, held_out.images) if held_out else _images(settings, plan)
    labelled = not is_unlabelled(train.labels)
    if not labelled:
        require_distillation(settings.finetune, settings.finetune.epochs)
    options = follow_recipe(settings.finetune, plan.reconstructed, labelled, len(train.labels))
    network = networks.load(run, weights="pruned")
    learns = options.epochs and (options.distill or options.distill_features)
    teacher = networks.load(run, weights="original") if learns else None
    features = features_of(teacher, network, plan, options.distill_features or 0.0) if teacher is not None else None
    job = TrainingJob(
        network,
        train,
        validation,
        options,
        plan.mean,
        plan.std,
        "fine-tuning",
        teacher,
        options.distill or 0.0,
        options.temperature,
        features,
    )
    history = fit(job, run.finetune_state, progress, run.events)
    choice = _choice(network, run, plan, validation, options, progress) if history.epochs else None
    if choice and choice.kept == "pruned":
        network = networks.load(run, weights="pruned")
        history = replace(history, validation_accuracy=history.baseline_validation_accuracy)
        progress.note(kept_words(choice))
    save_network(network, plan.input_shape, run.weights, file_hash(run.plan))
    record = Finetune(
        **vars(history),
        original_validation_accuracy=_original_accuracy(settings, run, plan, validation),
        validation_images=len(validation.labels),
        choice=choice,
    )
    save(record, run)
    run.finetune_state.unlink(missing_ok=True)
    return record


def _images(settings: Settings, plan: Plan) -> tuple[Split, Split]:
    """The training and validation images of the plan's classes."""
    _, height, width = plan.input_shape
    dataset = open_images_of(settings, (height, width))
    return Subset(dataset.train, plan.class_indices), Subset(dataset.validation, plan.class_indices)


def _choice(
    trained: nn.Module, run: RunFolder, plan: Plan, validation: Split, options: OptimiserSettings, progress: Progress
) -> Choice | None:
    """Whether the ``trained`` network is better than the pruned one; None without validation images."""
    if not len(validation.labels):
        return None
    device = choose_device(options.compute)
    images = decode_once(validation, device, progress, "comparing with the network before fine-tuning")

    def logits(network: nn.Module) -> NDArray[np.float32]:
        return predict(network, images, plan.mean, plan.std, options.batch_size or LARGEST_BATCH, device).numpy()

    before = networks.load(run, weights="pruned")
    original = networks.load(run, weights="original")
    return choose(logits(original), logits(before), logits(trained), validation.labels)


def _original_accuracy(settings: Settings, run: RunFolder, plan: Plan, images: Split) -> float | None:
    """The unpruned network's accuracy on the validation ``images``; None without images or without labels."""
    if not len(images.labels) or is_unlabelled(images.labels):
        return None
    network, device = networks.load(run, weights="original"), choose_device(settings.finetune.compute)
    return accuracy(predict(network, images, plan.mean, plan.std, settings.verify.batch_size, device), images.labels)
