"""Which classes a network has: those that settings name, or as many as its checkpoint has logits."""

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

# The network is built with this many, to see which of its tensors have one row for each class.
PROBE = 2


@dataclass(frozen=True)
class NamedClasses:
    """The classes of a network: ``names`` in the order of its logits, and the index of each of their ``ids``."""

    names: tuple[str, ...]
    ids: Mapping[str, int] = field(default_factory=dict)


def named_classes(settings: ModelSettings) -> NamedClasses | None:
    """The classes that ``settings`` name; None if they are those of the data."""
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
        ModelError: the name is not known, or its factory fails.
        CheckpointError: no such file, corrupt, or how many logits the network has does not follow from its tensors.
    """
    recorded = training_record(path)
    return recorded.classes if recorded else tuple(map(str, range(count_logits(name, path))))


def count_logits(name: str, path: Path) -> int:
    """How many logits the network ``name`` has with the weights in ``path``.

    Raises:
        ModelError, CheckpointError: as ``checkpoint_classes``.
    """
    stored, built = read_weights(path), build_model(name, PROBE).state_dict()
    counts = {
        len(tensor)
        for key, tensor in stored.items()
        if key in built and tensor.shape != built[key].shape and built[key].shape[:1] == (PROBE,)
    }
    if len(counts) > 1:
        raise CheckpointError(
            f"{path} does not say how many classes its network has: with {PROBE} of them {name} differs in tensors of "
            f"{', '.join(map(str, sorted(counts)))} rows.",
            'Name the classes in the order of the logits: [model] classes = ["first", "second"].',
        )
    return counts.pop() if counts else PROBE
