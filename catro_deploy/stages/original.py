"""What pruning and profiling start from: the trained network with the logits of the wanted classes, and its data."""

from dataclasses import dataclass

from torch import nn

from catro_deploy.data import open_dataset, resolve_classes
from catro_deploy.data.base import Dataset
from catro_deploy.graph.surgery import apply_keeps_
from catro_deploy.graph.trace import list_layers
from catro_deploy.models import build_model, default_size
from catro_deploy.models.checkpoint import load_checkpoint
from catro_deploy.profiling import Use
from catro_deploy.records import Keep
from catro_deploy.settings import Settings
from catro_deploy.targets import Target

__all__ = ["Original", "open_original", "use_of"]


@dataclass(frozen=True)
class Original:
    """The unpruned network on the CPU in eval mode; ``head`` is its last layer, ``wanted`` its logits."""

    model: nn.Module
    dataset: Dataset
    wanted: tuple[int, ...]
    head: str
    input_shape: tuple[int, int, int]

    @property
    def has_whole_head(self) -> bool:
        """Whether all classes of the checkpoint are wanted."""
        return len(self.wanted) == len(self.dataset.classes)


def open_original(settings: Settings) -> Original:
    """Build the checkpoint's network; of its logits only those of the wanted classes are left.

    Raises:
        UsageError: model, checkpoint, data or classes do not go together.
    """
    size = (settings.data.size, settings.data.size) if settings.data.size else default_size(settings.model.name)
    input_shape = (len(settings.model.mean), *size)
    dataset = open_dataset(settings.data, size, input_shape[0])
    wanted = resolve_classes(dataset.classes, dataset.groups, settings.prune.classes)
    model = build_model(settings.model.name, len(dataset.classes))
    load_checkpoint(model, settings.model.checkpoint)
    head = list_layers(model, input_shape)[-1].name
    if len(wanted) < len(dataset.classes):
        apply_keeps_(model, {head: Keep(out=wanted)})
    return Original(model.eval(), dataset, wanted, head, input_shape)


def use_of(target: Target, settings: Settings) -> Use:
    """How ``target`` is used under ``settings``."""
    threads, batch = settings.bench.threads or target.threads, settings.bench.batch or target.batch
    return Use(target.name, target.runtime, target.precision, threads, batch)
