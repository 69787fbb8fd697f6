"""The original on validation images, before pruning, to detect a wrong input or wrong labels."""

from dataclasses import replace
from pathlib import Path

from catro_deploy.assessment.inputs import better_input, evenly_spaced, logits_of
from catro_deploy.assessment.suspicions import Terms, look_at, most_images
from catro_deploy.data.base import Subset
from catro_deploy.graph.fx.features import images_at_once
from catro_deploy.models.checkpoint import networks_in, saving_alone
from catro_deploy.models.stated import stated_accuracy
from catro_deploy.progress import Progress
from catro_deploy.records import FirstLook
from catro_deploy.report.images import accuracy_words, size_warning
from catro_deploy.settings import Settings
from catro_deploy.stages.image_files import require_decodable
from catro_deploy.stages.inputs import other_inputs, prepared
from catro_deploy.stages.original import Original
from catro_deploy.stages.pretrained import published_accuracy
from catro_deploy.stages.sizes import announce_size
from catro_deploy.training.compute import choose_device

__all__ = ["first_look"]

TERMS = Terms(
    images="validation images",
    size="[data]",
    normalisation="[model]",
    channels="images are given as RGB",
    weights="[model] checkpoint",
    reorder=(
        'Name the classes in the order of its training: [model] classes = ["{first}", "{second}", ...], or a file of '
        "names."
    ),
)

CORRECT = (
    "Correct [model] classes, which must be in the order of its training ({first}, {second}, ...), or [data] labels."
)
"""What to do about the order of the classes if the settings name them."""


def first_look(original: Original, settings: Settings, progress: Progress) -> FirstLook:
    """Run ``original`` on validation images of the wanted classes; return its accuracy and what is suspicious.

    If all images would take too long, evenly spaced ones are used. Without labels, its confidence and most frequent
    prediction take the place of its accuracy.

    Raises:
        DataError: an image is missing or cannot be decoded.
        CheckpointError: the checkpoint cannot be read.
    """
    _, height, width = original.input_shape
    sizes = announce_size(original.dataset, (height, width), progress)
    require_decodable(original, settings, progress)
    look = _shown(original, settings, progress)
    more = filter(None, [size_warning(sizes, width, height), _unused_weights(original, settings.model.checkpoint)])
    look = replace(look, sizes=sizes, warnings=(*look.warnings, *more))
    progress.note(f"original: {accuracy_words(look)}")
    for warning in look.warnings:
        progress.note(f"WARNING: {warning}")
    return look


def _unused_weights(original: Original, checkpoint: Path) -> str:
    """A warning if ``checkpoint`` also holds other weights of the network, such as their moving average."""
    used, others = networks_in(checkpoint, original.model.state_dict())
    if not others:
        return ""
    return (
        f"{checkpoint} also holds weights of this network in {', '.join(others)}; those in {used or 'the file itself'} "
        f"are used. To use others, save them alone: {saving_alone(checkpoint, others[0])}"
    )


def _shown(original: Original, settings: Settings, progress: Progress) -> FirstLook:
    stated = stated_accuracy(settings.model.checkpoint) or published_accuracy(settings)
    validation = Subset(original.dataset.validation, original.wanted)
    if not len(validation.labels):
        return FirstLook(0, None, stated, None)
    places = evenly_spaced(len(validation.labels), most_images(original))
    shown = validation.at(places)
    device = choose_device(settings.prune.compute)
    at_once = images_at_once(original.model, original.input_shape, settings.prune.batch_size)

    def better(share: float) -> str:
        some = places[evenly_spaced(len(places))]
        inputs = other_inputs(original, validation, some, settings)
        return better_input(original.model, inputs, validation.labels[some], share, at_once, device)

    with progress.task("Looking at the original network", len(places)) as task:
        images = prepared(shown, "", original.mean, original.std)
        logits = logits_of(original.model, images, at_once, device, task)
    names = [original.classes[index] for index in original.wanted]
    every = len(original.classes)
    stated_classes = every if len(names) < every else None
    terms = TERMS if settings.model.classes is None else replace(TERMS, reorder=CORRECT)
    return look_at(logits, shown.labels, names, original.input_shape, terms, better, stated, stated_classes)
