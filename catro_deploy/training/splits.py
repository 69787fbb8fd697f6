"""Training on a dataset's splits: images are augmented on the device, and an interrupted training goes on."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from catro_deploy.data.base import Split
from catro_deploy.errors import DataError
from catro_deploy.files import text_hash
from catro_deploy.progress import Progress
from catro_deploy.settings import OptimiserSettings
from catro_deploy.training.batches import Batches
from catro_deploy.training.device import choose_hardware
from catro_deploy.training.evaluate import accuracy, predict
from catro_deploy.training.events import epochs_to_tensorboard
from catro_deploy.training.history import History
from catro_deploy.training.loop import Training, enough_memory
from catro_deploy.training.objective import Objective
from catro_deploy.training.pixels import hold
from catro_deploy.training.state import tensors_hash

__all__ = ["NOT_IN_FINGERPRINT", "fit"]

# Where training runs and how fast does not make it another training.
NOT_IN_FINGERPRINT = {"compute", "amp", "compile", "recipe", "tensorboard"}


def fit(
    model: nn.Module,
    train: Split,
    validation: Split,
    settings: OptimiserSettings,
    mean: Sequence[float],
    std: Sequence[float],
    state_path: Path,
    progress: Progress,
    title: str,
    teacher: nn.Module | None = None,
    distill: float = 0.0,
    temperature: float = 4.0,
    events: Path | None = None,
) -> History:
    """Train ``model`` in place; it ends on the CPU, in eval mode, with the final (if asked, averaged) weights.

    After every epoch all that is needed to go on is in ``state_path``; the caller deletes it when the weights are safe.
    If it is there at the start and belongs to this very training, that goes on after its last whole epoch. ``mean``
    and ``std`` (a value a channel, of pixels in 0..1) are subtracted and divided by. ``validation`` may be empty.
    ``teacher`` gives logits over the same classes, and ``distill`` is its share of the loss. ``events`` is the folder
    of event files, if settings ask for such.

    Raises:
        SettingsError: a GPU is wanted, or event files are, and there is none or no TensorBoard.
        DataError: fewer than 2 training images, or one that cannot be decoded.
        CheckpointError: ``state_path`` is damaged.
        NumericsError: the loss or a weight is not finite; the state of the last good epoch stays.
        StorageError: the state could not be written.
        FaultError: the GPU's memory is too small.
    """
    hardware = choose_hardware(model, settings.compute, settings.amp)
    count = len(train.labels)
    if count < 2:
        raise DataError(f"There are {count} training images; 2 are the least.", "Choose other classes, or add images.")
    aims = {"distill": distill, "temperature": temperature, "mean": list(mean), "std": list(std)}
    fingerprint = _fingerprint(model, teacher, train, settings, aims)
    with enough_memory(f'Lower batch_size (now {settings.batch_size}) or set compute = "cpu".'):
        batches = Batches(
            hold(train, hardware.device, progress, "reading training images"), settings, mean, std, hardware
        )
        held_out = hold(validation, hardware.device, progress, "reading validation images")
        objective = Objective(hardware, settings.label_smoothing, teacher, distill, temperature)

        def validate(network: nn.Module) -> float | None:
            if not len(held_out.labels):
                return None
            logits = predict(network, held_out, mean, std, settings.batch_size, hardware.device)
            return accuracy(logits, held_out.labels)

        training = Training(model, batches, objective, validate, settings, hardware)
        training.start(state_path, fingerprint, progress)
        with epochs_to_tensorboard(events if settings.tensorboard else None, len(training.state.epochs)) as record:
            training.run(state_path, progress, title, record)
        return training.finish(count)


def _fingerprint(
    model: nn.Module, teacher: nn.Module | None, train: Split, settings: OptimiserSettings, aims: dict[str, object]
) -> str:
    """A hash of all that decides where the training goes."""
    content = {
        "settings": settings.model_dump(mode="json", exclude=NOT_IN_FINGERPRINT),
        "model": tensors_hash(model.state_dict()),
        "teacher": tensors_hash(teacher.state_dict()) if teacher is not None else None,
        "labels": tensors_hash({"labels": torch.from_numpy(train.labels)}),
        **aims,
    }
    return text_hash(json.dumps(content, sort_keys=True))
