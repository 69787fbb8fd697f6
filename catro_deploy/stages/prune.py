"""Choose the channels that stay, cut the others out, and check that the cut network computes what it should."""

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from catro_deploy.data import open_dataset, resolve_classes
from catro_deploy.data.base import Dataset, Split, Subset
from catro_deploy.errors import DataError, FaultError
from catro_deploy.graph.features import Labelled
from catro_deploy.graph.surgery import apply_keeps_, keeps_of, masked
from catro_deploy.graph.trace import list_layers, trace
from catro_deploy.models import build_model, default_size
from catro_deploy.models.checkpoint import load_checkpoint, save_weights
from catro_deploy.plans import save_plan
from catro_deploy.progress import Progress
from catro_deploy.records import Budget, GroupPlan, Keep, Plan
from catro_deploy.runs import RunFolder
from catro_deploy.selection import choose_channels
from catro_deploy.settings import Settings
from catro_deploy.targets import load_target
from catro_deploy.training.augment import normalise
from catro_deploy.training.device import choose_device

__all__ = ["labelled_batches", "prune"]

LARGEST_DEVIATION = 1e-4


def prune(settings: Settings, run: RunFolder, progress: Progress) -> Plan:
    """Prune the checkpoint's network; write plan.json, original.safetensors and pruned.safetensors.

    The original keeps all its channels, but of its logits only those of the wanted classes.

    Raises:
        UsageError: settings, data, checkpoint or budget do not go together.
        NumericsError: a feature map is not finite, or a layer's channels are dead.
        FaultError: the pruned network does not compute what the masked original computes.
    """
    budget = Budget.parse(settings.prune.budget)
    load_target(settings.prune.target)
    size = (settings.data.size, settings.data.size) if settings.data.size else default_size(settings.model.name)
    input_shape = (len(settings.model.mean), *size)
    dataset = open_dataset(settings.data, size, input_shape[0])
    wanted = resolve_classes(dataset.classes, dataset.groups, settings.prune.classes)
    model = build_model(settings.model.name, len(dataset.classes))
    load_checkpoint(model, settings.model.checkpoint)

    head = list_layers(model, input_shape)[-1].name
    head_keeps = {head: Keep(out=wanted)} if len(wanted) < len(dataset.classes) else {}
    original = apply_keeps_(model, head_keeps)
    network = trace(original, input_shape, settings.prune.ignore)
    device = choose_device(settings.prune.device)
    batches = [(images.to(device), label) for images, label in _batches(dataset, wanted, settings)]
    groups = choose_channels(original.to(device), network, batches, budget, settings.prune, progress)
    keeps = keeps_of(network.groups, {group.name: group.kept for group in groups}, network.sizes)
    pruned = apply_keeps_(copy.deepcopy(original.cpu()), keeps)
    _check_equal(pruned, masked(original, keeps), batches[0][0].cpu())

    if head_keeps:
        keeps[head] = Keep(wanted, keeps[head].inputs if head in keeps else None)
    plan = _plan(settings, dataset, wanted, head, groups, keeps, (original, pruned), input_shape)
    save_weights(original, run.original_weights)
    save_weights(pruned, run.pruned_weights)
    save_plan(plan, run.plan)
    return plan


def labelled_batches(
    split: Split, names: Sequence[str], per_class: int, batch_size: int, seed: int
) -> list[tuple[torch.Tensor, int]]:
    """Draw ``per_class`` uint8 images of each class (fewer where there are fewer), in batches of one class each.

    Raises:
        DataError: a class has fewer than two images.
    """
    generator = np.random.default_rng(seed)
    batches = []
    for label, name in enumerate(names):
        mine = np.flatnonzero(split.labels == label)
        if len(mine) < 2:
            raise DataError(
                f"The class {name} has {len(mine)} image(s) for training, those held out for validation not counted; "
                "scatter within a class needs at least 2.",
                "Add images of it, or leave it out of --classes.",
            )
        drawn = np.sort(generator.permutation(mine)[:per_class])
        pieces = np.array_split(drawn, -(-len(drawn) // batch_size))
        batches += [(split.images(piece), label) for piece in pieces]
    return batches


def _batches(dataset: Dataset, wanted: Sequence[int], settings: Settings) -> list[Labelled]:
    names = [dataset.classes[index] for index in wanted]
    chosen = settings.prune
    drawn = labelled_batches(
        Subset(dataset.train, wanted), names, chosen.samples_per_class, chosen.batch_size, chosen.seed
    )
    return [(normalise(images, settings.model.mean, settings.model.std), label) for images, label in drawn]


def _check_equal(pruned: nn.Module, reference: nn.Module, images: torch.Tensor) -> None:
    with torch.inference_mode():
        expected, found = reference.eval()(images), pruned.eval()(images)
    deviation = float((expected - found).abs().max() / expected.abs().max().clamp(min=1e-12))
    if not deviation <= LARGEST_DEVIATION:
        raise FaultError(
            f"The pruned network deviates from the masked original by {deviation:.2g} of the largest logit "
            f"(at most {LARGEST_DEVIATION:.0e} is rounding): its channels were coupled wrongly.",
            "Nothing was written. Leave the part that is built unusually as it is: [prune] ignore in catro.toml.",
        )


def _plan(
    settings: Settings,
    dataset: Dataset,
    wanted: tuple[int, ...],
    head: str,
    groups: Sequence[GroupPlan],
    keeps: Mapping[str, Keep],
    networks: tuple[nn.Module, nn.Module],
    input_shape: tuple[int, int, int],
) -> Plan:
    macs = [sum(layer.macs for layer in list_layers(network, input_shape)) for network in networks]
    params = [sum(p.numel() for p in network.parameters()) for network in networks]
    return Plan(
        model=settings.model.name,
        model_classes=len(dataset.classes),
        input_shape=input_shape,
        mean=settings.model.mean,
        std=settings.model.std,
        classes=tuple(dataset.classes[index] for index in wanted),
        class_indices=wanted,
        head=head,
        target=settings.prune.target,
        budget=str(Budget.parse(settings.prune.budget)),
        criterion=settings.prune.criterion,
        allocation=settings.prune.allocation,
        groups=tuple(groups),
        keeps=dict(keeps),
        original_macs=macs[0],
        pruned_macs=macs[1],
        original_params=params[0],
        pruned_params=params[1],
        settings=settings.prune.model_dump(mode="json"),
    )
