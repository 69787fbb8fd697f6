"""The caller's module as a classifier to be pruned."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from catro_deploy.errors import DataError, ModelError
from catro_deploy.graph.coupling.trace import find_head
from catro_deploy.models import build_model
from catro_deploy.models.logits import logits_of
from catro_deploy.models.plain import copied, unwrapped, write_out_weights_
from catro_deploy.pruning.cutting import Classifier
from catro_deploy.settings.pixels import require_normalisation

__all__ = ["classifier_of"]


def classifier_of(
    model: nn.Module,
    images: torch.Tensor,
    class_names: Sequence[str] | None,
    mean: Sequence[float],
    std: Sequence[float],
    name: str,
) -> Classifier:
    """A copy of ``model`` with all its classes, for images like ``images`` (n, channels, height, width).

    Raises:
        DataError: ``class_names``, ``mean`` or ``std`` do not have one valid entry for each class or channel.
        ModelError: the model fails on the images, gives no logits, or is not what ``name`` builds.
    """
    channels, height, width = images.shape[1:]
    shape = (channels, height, width)
    mean, std = _normalisation(mean, std, channels)
    given_names = None if class_names is None else _texts(class_names)
    own = write_out_weights_(copied(_module(model)).cpu().float().eval())
    head = find_head(own, shape)
    count = logits_of(own, images).shape[1]
    if count < 2:
        raise ModelError(
            "The model gives one logit for each image; a classifier needs one for each of at least two classes.",
            "For a binary classifier return torch.cat([torch.zeros_like(logit), logit], 1): its softmax is the "
            "sigmoid.",
        )
    names = tuple(map(str, range(count))) if given_names is None else given_names
    if len(set(names)) != len(names) or len(names) != count:
        raise DataError(
            f"There are {len(set(names))} different class names for {count} logits.",
            "Give class_names one name for each class, in the order of the logits.",
        )
    if not isinstance(name, str):
        raise ModelError(f"name = {name!r} is no string.", 'Name a factory, "package.module:factory", or leave it out.')
    if name:
        _require_same(write_out_weights_(build_model(name, count)), own, name)
    return Classifier(own, shape, head, names, tuple(range(count)), name, mean, std)


def _normalisation(
    mean: Sequence[float], std: Sequence[float], channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """``mean`` and ``std`` as floats: one for each channel, or none.

    Raises:
        DataError: they are not that, or not for pixels in 0..1.
    """
    try:
        mean, std = tuple(map(float, mean)), tuple(map(float, std))
    except (TypeError, ValueError):
        raise DataError(
            f"mean = {mean!r} and std = {std!r} are not sequences of numbers.",
            "Give both one value per channel, or leave both out.",
        ) from None
    if (len(mean), len(std)) not in ((0, 0), (channels, channels)):
        raise DataError(
            f"mean has {len(mean)} and std {len(std)} values for images of {channels} channels.",
            "Give both one value per channel, or leave both out.",
        )
    try:
        if mean:
            require_normalisation(mean, std)
    except ValueError as error:
        raise DataError(f"{error}.", "Give the values by which your loader normalises pixels in 0..1.") from None
    return mean, std


def _texts(class_names: object) -> tuple[str, ...]:
    """The names as plain strings.

    Raises:
        DataError: ``class_names`` is no sequence, or has something else than strings.
    """
    if isinstance(class_names, str) or not isinstance(class_names, Iterable):
        raise DataError(f"class_names = {class_names!r} is no sequence of names.", "Give a list of strings.")
    class_names = list(class_names)
    for name in class_names:
        if not isinstance(name, str):
            raise DataError(
                f"The class name {name!r} is of type {type(name).__name__}, not a string.",
                "Give strings, for instance class_names=list(map(str, names)).",
            )
    return tuple(map(str, class_names))  # those of numpy, too, become plain strings


def _module(model: object) -> nn.Module:
    """The caller's network, without wrappers.

    Raises:
        ModelError: it is no module, or has a TorchScript module, whose forward cannot be followed.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"The model is a {type(model).__name__}, not a torch.nn.Module.",
            "Give the trained network itself; if this is a function that builds it, give what it returns.",
        )
    return unwrapped(model)


def _require_same(built: nn.Module, own: nn.Module, name: str) -> None:
    """Check that the factory ``name`` builds a network with the same weights' names and shapes."""
    shapes = [{key: tuple(tensor.shape) for key, tensor in network.state_dict().items()} for network in (built, own)]
    for key in dict.fromkeys([*shapes[0], *shapes[1]]):
        there, here = (f"{shape[key]}" if key in shape else "missing" for shape in shapes)
        if there != here:
            raise ModelError(
                f"{name} builds a different network from the given one: {key} is {there}, here it is {here}.",
                "Name the factory that this network came from, or leave the name out.",
            )
