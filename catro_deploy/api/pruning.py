"""``prune``: from a trained module and a loader to a pruned network."""

import operator
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsIndex, Unpack, cast

from torch import nn

from catro_deploy.api.classifier import classifier_of
from catro_deploy.api.first_look import first_look
from catro_deploy.api.options import PruneOptions
from catro_deploy.api.pruned import PrunedModel
from catro_deploy.data.classes import resolve_classes
from catro_deploy.data.loader import Loader, Opened, WantedClasses, class_samples, image_samples, open_loader
from catro_deploy.errors import BudgetError, CatroWarning, SettingsError
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.models.modes import default_modes
from catro_deploy.progress import Progress, progress_or_silent
from catro_deploy.pruning.classifier import prune_classifier, scoring_batch_size
from catro_deploy.pruning.cutting import Classifier, with_classes
from catro_deploy.settings import Settings, load_settings
from catro_deploy.settings.labels import require_pruning_without_labels
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import require_latency
from catro_deploy.transports.sides import require_power, require_sides

__all__ = ["prune"]


@default_modes()
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
    """Prune a trained classifier until it meets ``budget``; ``model`` itself is not changed.

    For a latency budget, times are measured on this machine, as on the command line: the layers of the network are
    timed once (some minutes; the times are reused), and candidates are timed interleaved with the original.

    Args:
        model: maps images (n, channels, height, width) to logits (n, all classes).
        loader: yields pairs of normalised float images (n, channels, height, width) and integer labels (n,), as a torch
            DataLoader does. It is iterated once, until each class has ``samples_per_class`` images, or all classes
            together ``max_samples``: shuffle it, since only the first images of each class are used. It may yield
            images without labels, as tensors or 1-tuples: then leave ``reconstruct`` and ``worth`` at their defaults;
            as many images are used as for all classes together.
        target: a device of ``catro-deploy targets list``, or the path of a target file.
        classes: classes that the pruned network distinguishes, by index or by one of ``class_names``; None: all. Its
            logits are in the order given here.
        budget: what the pruned network may use: ``0.5x`` of the original's latency, ``400us``, ``1.5ms``, or
            ``50%flops`` of its multiply-accumulates, for which nothing is measured.
        name: ``package.module:factory`` (or another model name of the command line) that builds ``model`` when it is
            called with the number of classes; with it, a saved network can be loaded without ``model=``.
        class_names: names of all classes, in the order of the logits; recorded in the plan and the ONNX file.
        mean: mean that the images were normalised with, one value per channel, for pixels in 0..1; recorded in the
            plan and the ONNX file, and used to find out which other inputs would suit the original better.
        std: standard deviation, likewise.
        validation: images for the first look at the original, in the form of ``loader``; None: those that channels are
            scored on. ``plan.first_look`` records the accuracy. A ``CatroWarning`` with the likely causes is issued if
            it is near chance, or if the predictions would be right in another order of the classes.
        threads: threads of the runtime that latency is measured with; None: the target's value.
        batch: images per inference when latency is measured; None: the target's value.
        profile: how thoroughly layers are timed: ``standard``, ``quick``, or the path of a protocol.
        progress: reports progress; None: no report.
        **options: further settings, see ``PruneOptions``.

    Returns:
        The pruned network, with the plan that records what was kept and why.

    Raises:
        SettingsError: an option is unknown, or its value is invalid; ``classes`` has something else than integers and
            names; or the loader yields images without labels, and an option needs labels.
        BudgetError: the budget cannot be parsed, or no network meets it.
        TargetError: the target is unknown, or cannot be measured or estimated.
        DataError: the loader yields something else, or fewer than two images of a class; or ``classes``,
            ``class_names``, ``mean`` or ``std`` are invalid.
        ModelError: the network fails on the images, cannot be traced, or ``name`` builds a different one.
        MissedError: no network meets a latency budget; the message names the fastest.
        NumericsError: a feature map is not finite, or a layer's channels are dead.
        FaultError: the pruned network does not compute what the masked original computes.
    """
    reporter, named = progress_or_silent(progress), _named(classes)
    _require_budget(budget)
    chosen = {**options, "target": str(target), "budget": budget, "classes": named}
    bench = {"threads": threads, "batch": batch}
    given: dict[str, dict[str, Any]] = {"prune": chosen, "bench": bench, "profile": {"protocol": profile}}
    settings = load_settings(None, given, given_as="keywords")
    _require_reachable(settings)
    opened = open_loader(loader)
    if not opened.labelled:
        require_pruning_without_labels(settings.prune)
    whole = classifier_of(model, opened.images, class_names, mean, std, name)
    original = with_classes(whole, resolve_classes(whole.classes, {}, named), opened.images)
    samples = _samples(opened, original, settings)
    look = first_look(original, samples, validation, settings, reporter, labelled=opened.labelled)
    for warning in look.warnings:
        warnings.warn(warning, CatroWarning, stacklevel=3)
    pruned = prune_classifier(original, samples, settings, reporter, labelled=opened.labelled)
    return PrunedModel(pruned.model, original.model, replace(pruned.plan, first_look=look))


def _require_budget(budget: object) -> None:
    """Check that there is a budget: the settings read None as the default.

    Raises:
        BudgetError: there is none.
    """
    if budget is None:
        raise BudgetError("budget = None is no budget.", 'Name one, such as "0.5x", "400us" or "50%flops".')


def _named(classes: Iterable[int | str] | None) -> list[int | str]:
    """The wanted classes; empty for all.

    Raises:
        SettingsError: they are no sequence of integers and names.
    """
    if isinstance(classes, str) or not isinstance(classes, Iterable | None):
        raise SettingsError(f"classes = {classes!r} is no sequence.", f"Give a list, for instance [{classes!r}].")
    return [_index_or_name(item) for item in (() if classes is None else classes)]


def _index_or_name(item: object) -> int | str:
    """A class as it was given, in plain types: integers of numpy and torch become ``int``.

    Raises:
        SettingsError: it is neither an integer nor a string.
    """
    if isinstance(item, str):
        return str(item)
    is_truth = isinstance(item, bool) or str(getattr(item, "dtype", "")).endswith("bool")
    if not is_truth:
        with suppress(TypeError):
            return operator.index(cast("SupportsIndex", item))
    raise SettingsError(
        f"classes has {item!r}, which is neither an index nor a name.",
        "Give the indices of the wanted classes; of a mask, they are numpy.flatnonzero(mask)."
        if is_truth
        else "Give indices, which are integers, or some of class_names.",
    )


def _samples(opened: Opened, original: Classifier, settings: Settings) -> list[Labelled]:
    """The images that channels are scored on; without labels, as many as for all classes together."""
    chosen, shape = settings.prune, original.input_shape
    batch_size, per_class = scoring_batch_size(original, chosen), chosen.samples_of_each(len(original.wanted))
    if not opened.labelled:
        return image_samples(opened.batches, shape, per_class * len(original.wanted), batch_size)
    return class_samples(
        opened.batches,
        WantedClasses(len(original.classes), original.wanted),
        [original.classes[index] for index in original.wanted],
        shape,
        per_class,
        batch_size,
    )


def _require_reachable(settings: Settings) -> None:
    """Check early that the budget is valid, and that its unit is available for every target."""
    target = load_target(settings.prune.target)
    require_sides(settings)
    if any(budget.is_timed for budget in settings.prune.budgets):
        require_latency(target, settings.prune.device)
    require_power(settings)
