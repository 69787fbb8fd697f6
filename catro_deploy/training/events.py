"""Event files for TensorBoard: the metrics of each epoch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from catro_deploy.errors import SettingsError
from catro_deploy.records import Epoch

__all__ = ["epochs_to_tensorboard"]


@contextmanager
def epochs_to_tensorboard(folder: Path | None, done: int) -> Iterator[Callable[[Epoch], None]]:
    """Yield a function that writes an epoch's loss, learning rate, accuracy and seconds to ``folder``, if there is one.

    ``done`` epochs are finished: events of later epochs, left by a killed training, are purged.

    Raises:
        SettingsError: TensorBoard is not installed.
    """
    if folder is None:
        yield lambda epoch: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingsError(
            "Event files are requested (tensorboard = true), but TensorBoard is not installed.",
            "pip install 'catro-deploy[tensorboard]'; or remove tensorboard from the settings.",
        ) from None
    writer = SummaryWriter(folder, purge_step=done + 1)

    def record(epoch: Epoch) -> None:
        values = {"loss": epoch.loss, "learning_rate": epoch.learning_rate, "seconds": epoch.seconds}
        if epoch.validation_accuracy is not None:
            values["validation_accuracy"] = epoch.validation_accuracy
        for name, value in values.items():
            writer.add_scalar(name, value, epoch.epoch)
        writer.flush()

    try:
        yield record
    finally:
        writer.close()
