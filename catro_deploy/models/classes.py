"""The classes of a network: those named in the settings, or one for each logit of its checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from catro_deploy.errors import CheckpointError
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import read_weights, training_record
from catro_deploy.models.imagenet import imagenet_ids, imagenet_names
from catro_deploy.settings import ModelSettings
from catro_deploy.settings.section import IMAGENET

__all__ = ["NamedClasses", "checkpoint_classes", "count_logits", "named_classes"]

# The network is built with this many classes, to find its tensors with one row per class.
PROBE = 2
EXAMPLE = '[model] classes = ["first", "second"]'


@dataclass(frozen=True)
class NamedClasses:
    """The classes of a network: ``names`` in the order of its logits, and ``ids`` with the index of each."""

    names: tuple[str, ...]
    ids: Mapping[str, int] = field(default_factory=dict)


def named_classes(settings: ModelSettings) -> NamedClasses | None:
    """The classes named in ``settings``; None if they are those of the data."""
    named = settings.classes
    if named is None:
        return None
    if named == IMAGENET:
        return NamedClasses(imagenet_names(), imagenet_ids())
    if isinstance(named, int):
        return NamedClasses(tuple(map(str, range(named))))
    names = tuple(one if isinstance(one, str) else one[1] for one in named)
    return NamedClasses(names, {one[0]: index for index, one in enumerate(named) if not isinstance(one, str)})


def checkpoint_classes(name: str, path: Path) -> tuple[str, ...]:
    """Names of the classes of the network ``name`` whose weights are in ``path``, in the order of its logits.

    Those that ``train`` recorded in the file; else "0", "1", ..., one for each logit.

    Raises:
        ModelError: the name is unknown, or its factory fails.
        CheckpointError: the file is missing or corrupt, or its tensors do not determine the number of logits.
    """
    recorded = training_record(path)
    return recorded.classes if recorded else tuple(map(str, range(count_logits(name, path))))


def count_logits(name: str, path: Path) -> int:
    """The number of logits of the network ``name`` with the weights in ``path``.

    Raises:
        ModelError, CheckpointError: see ``checkpoint_classes``.
    """
    built = build_model(name, PROBE).state_dict()
    stored = read_weights(path, built)
    by_class = [key for key, tensor in built.items() if tensor.shape[:1] == (PROBE,)]
    if not any(key in stored for key in by_class):
        raise CheckpointError(
            f"The number of classes cannot be inferred from {path}: it holds no tensor of {name} with a row per class"
            + (f" ({', '.join(by_class)})." if by_class else "."),
            f"Give the weights of the whole network, with its last layer, or name its classes: {EXAMPLE}",
        )
    different = (stored[key] for key in by_class if key in stored and stored[key].shape != built[key].shape)
    counts = {len(tensor) for tensor in different if tensor.ndim}
    if len(counts) > 1:
        raise CheckpointError(
            f"The number of classes cannot be inferred from {path}: its tensors that differ from those of {name} with "
            f"{PROBE} classes have {', '.join(map(str, sorted(counts)))} rows.",
            f"Name the classes in the order of the logits: {EXAMPLE}",
        )
    return counts.pop() if counts else PROBE
