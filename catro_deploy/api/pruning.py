"""``prune``: from a trained module and a loader to a pruned network."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from torch import nn

from catro_deploy.api.classifier import classifier_of
from catro_deploy.api.first_look import first_look
from catro_deploy.api.options import PruneOptions
from catro_deploy.api.pruned import PrunedModel
from catro_deploy.data.classes import resolve_classes
from catro_deploy.data.loader import Loader, Opened, WantedClasses, class_samples, image_samples, open_loader
from catro_deploy.errors import CatroWarning
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.progress import Progress, Silent
from catro_deploy.pruning.classifier import prune_classifier, scoring_batch_size
from catro_deploy.pruning.cutting import Classifier, with_classes
from catro_deploy.settings import Settings, load_settings
from catro_deploy.settings.labels import require_pruning_without_labels
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import require_latency

__all__ = ["prune"]


def prune(
    model: nn.Module,
    loader: Loader,
    *,
    target: str | Path = "x86-cpu",
    classes: Iterable[int | str] | None = None,
    budget: str = "0.5x",
    name: str = "",
    class_names: Sequence[str] | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    validation: Loader | None = None,
    threads: int | None = None,
    batch: int | None = None,
    profile: str = "standard",
    progress: Progress | None = None,
    **options: Unpack[PruneOptions],
) -> PrunedModel:
    """Prune a trained classifier until it meets ``budget``; ``model`` itself stays as it is.

    A budget of latency is measured on this machine, as the command line does it: the layers of the network are timed
    once (some minutes; kept for the next time), and candidates are timed interleaved with the original.

    Args:
        model: maps images (n, channels, height, width) to logits (n, all classes).
        loader: gives pairs of normalised float images (n, channels, height, width) and integer labels (n,), as a torch
            DataLoader does. It is iterated once, until each class has ``samples_per_class`` images: shuffle it, or the
            first ones of each class decide. It may give images alone, as tensors or tuples of one: then ``reconstruct``
            and ``worth`` stay at their defaults, and as many images count as would of all classes.
        target: a device of ``catro-deploy targets list``, or the path of a target file.
        classes: those that the pruned network distinguishes, by index or by one of ``class_names``; None: all. Its
            logits are theirs, in the order in which they are named here.
        budget: what may be used: ``0.5x`` of the original's latency, ``400us``, ``1.5ms``, or ``50%flops`` of its
            multiply-accumulates, for which nothing is measured.
        name: ``package.module:factory`` (or another model name of the command line) that builds ``model`` when it is
            called with the number of classes; with it, a saved network can be loaded without ``model=``.
        class_names: of all classes, in the order of the logits; they go into the plan and the ONNX file.
        mean: what images were normalised with, one value per channel, for pixels in 0..1; it is only recorded in the
            plan and the ONNX file.
        std: likewise.
        validation: images for the first look at the original, as ``loader`` gives them; None: those that channels are
            scored on. ``plan.first_look`` keeps its accuracy. A ``CatroWarning`` says if that is near chance, or right
            in another order of the classes, with the likely causes.
        threads: of the runtime that latency is measured with; None: the target's.
        batch: images at a time when latency is measured; None: the target's.
        profile: how thoroughly layers are timed: ``standard``, ``quick``, or the path of a protocol.
        progress: reports progress; None: no report.
        **options: further settings, see ``PruneOptions``.

    Returns:
        The pruned network, with the plan that says what was kept and why.

    Raises:
        SettingsError: an option is not known, or its value does not fit; or the loader gives images alone, and
            they need labels.
        BudgetError: the budget cannot be read, or no network meets it.
        TargetError: the target is not known, or cannot be measured or estimated.
        DataError: the loader gives something else, or fewer than two images of a class.
        ModelError: the network fails on the images, cannot be traced, or ``name`` builds another one.
        MissedError: no network meets a budget of latency; the fastest is named.
        NumericsError: a feature map is not finite, or a layer's channels are dead.
        FaultError: the pruned network does not compute what the masked original computes.
    """
    named = [item if isinstance(item, str) else int(item) for item in (() if classes is None else classes)]
    chosen = {**options, "target": str(target), "budget": budget, "classes": named}
    bench = {"threads": threads, "batch": batch}
    settings = load_settings(None, {"prune": chosen, "bench": bench, "profile": {"protocol": profile}})
    _require_reachable(settings)
    opened = open_loader(loader)
    if not opened.labelled:
        require_pruning_without_labels(settings.prune)
    whole = classifier_of(model, opened.images, class_names, tuple(mean), tuple(std), name)
    original = with_classes(whole, resolve_classes(whole.classes, {}, named), opened.images)
    samples = _samples(opened, original, settings)
    told = progress or Silent()
    look = first_look(original, samples, validation, settings, told, labelled=opened.labelled)
    for warning in look.warnings:
        warnings.warn(warning, CatroWarning, stacklevel=2)
    pruned = prune_classifier(original, samples, settings, told, labelled=opened.labelled)
    return PrunedModel(pruned.model, original.model, replace(pruned.plan, first_look=look))


def _samples(opened: Opened, original: Classifier, settings: Settings) -> list[Labelled]:
    """The images that channels are scored on; without labels as many as of all classes together."""
    chosen, shape = settings.prune, original.input_shape
    batch_size = scoring_batch_size(original, chosen)
    if not opened.labelled:
        count = chosen.samples_per_class * len(original.wanted)
        return image_samples(opened.batches, shape, count, batch_size)
    return class_samples(
        opened.batches,
        WantedClasses(len(original.classes), original.wanted),
        [original.classes[index] for index in original.wanted],
        shape,
        chosen.samples_per_class,
        batch_size,
    )


def _require_reachable(settings: Settings) -> None:
    """Check early that the budget is valid, and that its unit is available for the target."""
    target = load_target(settings.prune.target)
    if any(budget.is_timed for budget in settings.prune.budgets):
        require_latency(target, settings.prune.device)
