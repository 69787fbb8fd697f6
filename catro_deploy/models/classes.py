"""Which classes a checkpoint's network has, for images that come without class names."""

from pathlib import Path

from catro_deploy.errors import CheckpointError
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import read_weights, training_record

__all__ = ["checkpoint_classes"]

# The network is built with so many, to see which of its tensors have one row for each class.
PROBE = 2


def checkpoint_classes(name: str, path: Path) -> tuple[str, ...]:
    """Names of the classes of the network ``name`` whose weights are in ``path``, in the order of its logits.

    Those that ``train`` recorded in the file; else "0", "1", ..., one for each logit.

    Raises:
        ModelError: the name is not known, or its factory fails.
        CheckpointError: no such file, corrupt, or how many logits the network has does not follow from its tensors.
    """
    recorded = training_record(path)
    return recorded.classes if recorded else tuple(map(str, range(_count_logits(name, path))))


def _count_logits(name: str, path: Path) -> int:
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
            'Name the classes in the order of the logits: [data] classes = ["first", "second"].',
        )
    return counts.pop() if counts else PROBE
