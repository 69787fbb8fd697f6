"""The start of pruning and profiling: the trained network with the logits of the wanted classes, and its data."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from catro_deploy.data import resolve_classes, with_class_names
from catro_deploy.data.base import Dataset
from catro_deploy.errors import CheckpointError, DataError, ModelError
from catro_deploy.graph.coupling.trace import find_head, require_modules
from catro_deploy.graph.onnx.export import require_classes_for
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint, training_record
from catro_deploy.models.classes import checkpoint_classes, count_logits
from catro_deploy.models.constants import constants_of, differing_constants
from catro_deploy.models.imagenet import IMAGENET_CLASSES
from catro_deploy.models.logits import logits_of
from catro_deploy.models.plain import write_out_weights_
from catro_deploy.pruning.cutting import Classifier, at_input_size, with_classes
from catro_deploy.settings import Settings
from catro_deploy.settings.section import IMAGENET
from catro_deploy.stages.images import classes_with_images, open_images_of, wanted_test_images
from catro_deploy.stages.sizes import sized
from catro_deploy.toml import toml_value
from catro_deploy.training.trainable import require_trainable

__all__ = ["Original", "open_original"]


@dataclass(frozen=True)
class Original(Classifier):
    """The checkpoint's classifier, and the images that it is for."""

    dataset: Dataset


def open_original(settings: Settings) -> Original:
    """Build the checkpoint's network, with only the logits of the wanted classes, in the order named.

    Images without class names get those of the checkpoint. Without ``prune.classes``, all classes with images are
    wanted.

    Raises:
        UsageError: model, checkpoint, data or classes do not match; or the settings name a module that the network does
            not have, an input size that it does not accept, or more top classes than there are.
    """
    chosen, size = settings.model, sized(settings)
    input_shape = (len(chosen.mean), *size)
    dataset = open_images_of(settings, size)
    if not dataset.classes:
        dataset = with_class_names(dataset, checkpoint_classes(chosen.name, chosen.checkpoint), settings.data)
    recorded = training_record(chosen.checkpoint)
    if recorded is not None:
        _require_recorded_order(settings, dataset, recorded.classes)
    wanted = resolve_classes(dataset.classes, dataset.groups, settings.prune.classes or classes_with_images(dataset))
    require_classes_for(settings.export.top_k, len(wanted))
    wanted_test_images(dataset, wanted, [dataset.classes[index] for index in wanted])
    model = build_model(chosen.name, len(dataset.classes))
    require_modules(settings.prune.ignore, dict(model.named_modules()))
    try:
        load_checkpoint(model, chosen.checkpoint)
    except CheckpointError:
        with suppress(CheckpointError):  # the error from loading lists the tensors
            _require_matching_logits(settings, dataset, count_logits(chosen.name, chosen.checkpoint))
        raise
    images = torch.randn((2, *input_shape), generator=torch.Generator().manual_seed(0))
    _require_constants(settings, model, len(dataset.classes), images)
    write_out_weights_(model)
    whole = Original(
        model=model.eval(),
        input_shape=input_shape,
        head=find_head(model, input_shape),
        classes=dataset.classes,
        wanted=tuple(range(len(dataset.classes))),
        name=chosen.name,
        mean=chosen.mean,
        std=chosen.std,
        dataset=dataset,
    )
    # A factory may ignore the number of classes.
    _require_matching_logits(settings, dataset, logits_of(whole.model, images).shape[1])
    at_input_size(whole, settings.prune.input_size)  # an impossible size is reported before anything is computed
    if settings.finetune.epochs:
        require_trainable(whole.model, input_shape)
    return with_classes(whole, wanted, images)


def _require_constants(settings: Settings, model: nn.Module, classes: int, images: torch.Tensor) -> None:
    """Check that the logits of ``model`` do not depend on random numbers that its checkpoint lacks.

    ``model`` is built for ``classes`` and loaded.

    Raises:
        ModelError: it does.
    """
    if not constants_of(model):
        return
    chosen = settings.model
    again = build_model(chosen.name, classes)
    load_checkpoint(again, chosen.checkpoint)
    names = differing_constants(model, again)
    if names and not torch.equal(logits_of(model, images), logits_of(again, images)):
        raise ModelError(
            f"{chosen.name} draws random numbers for {', '.join(names)}, and {chosen.checkpoint} does not have those "
            "that it was trained with.",
            "Make them persistent buffers and save the checkpoint again, or draw them with a fixed seed.",
        )


def _require_recorded_order(settings: Settings, dataset: Dataset, recorded: Sequence[str]) -> None:
    """Check that no class has another index than in the training of the checkpoint, whose classes are ``recorded``.

    Raises:
        DataError: one has. If classes were added or removed, the network would call most images by a wrong name.
    """
    places = {name: index for index, name in enumerate(recorded)}
    for index, name in enumerate(dataset.classes):
        if places.get(name, index) != index:
            raise DataError(
                f"{name!r} is class {places[name]} of {settings.model.checkpoint}, as its training recorded, but class "
                f"{index} of {dataset.name}.",
                f"Name the classes in the order of the logits: [model] classes = {toml_value(list(recorded))}",
            )


def _require_matching_logits(settings: Settings, dataset: Dataset, logits: int) -> None:
    """Explain a checkpoint of a network with another number of classes, ``logits``, than the dataset.

    Raises:
        DataError: the numbers differ.
    """
    if logits == len(dataset.classes):
        return
    if (recorded := training_record(settings.model.checkpoint)) is not None:
        known = toml_value(list(recorded.classes))
    elif logits == IMAGENET_CLASSES:
        known = f'"{IMAGENET}"'
    else:
        known = '"names.txt" (one per line, in the order of the logits)'
    source = "[model] classes name" if settings.model.classes is not None else f"{dataset.name} has"
    raise DataError(
        f"{settings.model.checkpoint} is of a network with {logits} classes; {source} {len(dataset.classes)}.",
        f"If the images are of some of its classes, name all of them: [model] classes = {known}; map folders of other "
        'names: [data] labels = {"folder" = "class"}. If they are of new classes, train the network on them first.',
    )
