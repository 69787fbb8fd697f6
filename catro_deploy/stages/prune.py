"""``prune``: choose which channels of the checkpoint's network stay, and write the cut network and its plan."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from catro_deploy.data.base import Split, Subset
from catro_deploy.errors import DataError
from catro_deploy.files import write_bytes
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.models.saved import save_network
from catro_deploy.progress import Progress
from catro_deploy.pruning.classifier import prune_classifier, scoring_batch_size
from catro_deploy.pruning.cutting import Cut, Pruned, cut_classifier
from catro_deploy.pruning.shared import Shared
from catro_deploy.records import FirstLook, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan, save_plan
from catro_deploy.settings import Settings
from catro_deploy.settings.labels import require_pruning_without_labels
from catro_deploy.stages.first_look import first_look
from catro_deploy.stages.original import Original, open_original
from catro_deploy.stages.trials import trial_folder
from catro_deploy.training.normalised import NormalisedBatches
from catro_deploy.units import counted

__all__ = ["labelled_batches", "prune", "pruning_batches", "unlabelled_batches", "write_pruning"]


def prune(
    settings: Settings,
    run: RunFolder,
    progress: Progress,
    look: FirstLook | None = None,
    shared: Shared | None = None,
) -> Plan:
    """Prune the checkpoint's network; write plan.json, original.safetensors and pruned.safetensors.

    The original keeps all its channels, but only the logits of the wanted classes. If a trial has already pruned a
    network for this budget or variant, that network is used: pruned and measured again, it might be different and miss
    the budget.
    ``look`` is the result of a first look at the original; without it one is taken. Trials of one search use the same
    ``shared``.

    Raises:
        UsageError: settings, data, checkpoint or budget do not match.
        MissedError: no network meets a latency budget.
        NumericsError: a feature map is not finite, or a layer's channels are dead.
        FaultError: the pruned network does not compute what the masked original computes.
    """
    original = open_original(settings)
    if run.searched.is_dir() and (trial := trial_folder(settings, run)).plan.is_file():
        return _take_over(original, trial, run)
    batches = pruning_batches(original, settings)
    look = look or first_look(original, settings, progress)
    labelled = original.dataset.labelled
    pruned = prune_classifier(original, batches, settings, progress, labelled=labelled, shared=shared)
    return _write(original, replace(pruned, plan=replace(pruned.plan, first_look=look)), run)


def write_pruning(settings: Settings, original: Original, cut: Cut, images: torch.Tensor, run: RunFolder) -> Plan:
    """Cut ``original`` according to ``cut``; check it on ``images``; write it to ``run``.

    Raises:
        FaultError: the pruned network does not compute what the masked original computes.
    """
    network = trace(original.model, original.input_shape, settings.prune.ignore)
    return _write(original, cut_classifier(original, network, cut, images, settings), run)


def pruning_batches(original: Original, settings: Settings) -> Sequence[Labelled]:
    """Normalised images of the wanted classes that channels are chosen by, drawn class by class according to [prune].

    Images without labels are all of class 0; their number is that of all classes together.

    Raises:
        DataError: a class has fewer than two images.
        SettingsError: the images have no labels, and the settings need them.
    """
    names = [original.classes[index] for index in original.wanted]
    chosen, train = settings.prune, Subset(original.dataset.train, original.wanted)
    batch_size, per_class = scoring_batch_size(original, chosen), chosen.samples_of_each(len(names))
    if original.dataset.labelled:
        drawn = labelled_batches(train, names, per_class, batch_size, chosen.seed)
    else:
        require_pruning_without_labels(settings.prune)
        drawn = unlabelled_batches(train, per_class * len(names), batch_size, chosen.seed)
    return NormalisedBatches(drawn, original.mean, original.std)


def labelled_batches(
    split: Split, names: Sequence[str], per_class: int, batch_size: int, seed: int
) -> list[tuple[torch.Tensor, int]]:
    """Draw ``per_class`` uint8 images of each class (all if there are fewer), in batches of one class each.

    Raises:
        DataError: a class has fewer than two images.
    """
    generator = np.random.default_rng(seed)
    batches = []
    for label, name in enumerate(names):
        mine = np.flatnonzero(split.labels == label)
        if len(mine) < 2:
            raise DataError(
                f"The class {name} has {counted(len(mine), 'image')} for training, those held out for validation not "
                "counted; scatter within a class needs at least 2.",
                "Add images of it, or leave it out of --classes.",
            )
        drawn = np.sort(generator.permutation(mine)[:per_class])
        pieces = np.array_split(drawn, -(-len(drawn) // batch_size))
        batches += [(split.images(piece), label) for piece in pieces]
    return batches


def unlabelled_batches(split: Split, count: int, batch_size: int, seed: int) -> list[tuple[torch.Tensor, int]]:
    """Draw ``count`` uint8 images (all if there are fewer), in batches, all of them of class 0."""
    drawn = np.sort(np.random.default_rng(seed).permutation(len(split.labels))[:count])
    pieces = np.array_split(drawn, -(-len(drawn) // batch_size))
    return [(split.images(piece), 0) for piece in pieces]


def _take_over(original: Original, trial: RunFolder, run: RunFolder) -> Plan:
    plan = load_plan(trial)
    save_network(original.model, original.input_shape, run.original_weights)
    write_bytes(run.pruned_weights, trial.pruned_weights.read_bytes())
    save_plan(plan, run.plan)
    return plan


def _write(original: Original, pruned: Pruned, run: RunFolder) -> Plan:
    save_network(original.model, original.input_shape, run.original_weights)
    save_network(pruned.model, original.input_shape, run.pruned_weights)
    save_plan(pruned.plan, run.plan)
    return pruned.plan
