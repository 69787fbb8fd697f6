"""Event files, read back with TensorBoard."""

import sys

import pytest

from catro_deploy.errors import SettingsError
from catro_deploy.records import Epoch
from catro_deploy.training.events import epochs_to_tensorboard

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def epoch(number, accuracy=0.5):
    return Epoch(number, 1 / number, 0.1, accuracy, 2.0)


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: {one.step: one.value for one in events.Scalars(name)} for name in events.Tags()["scalars"]}


def test_every_epoch_is_written_and_one_that_was_killed_is_purged(tmp_path):
    with epochs_to_tensorboard(tmp_path, 0) as record:
        for number in (1, 2, 3):
            record(epoch(number))
    with epochs_to_tensorboard(tmp_path, 2) as record:  # the state of the third epoch was never written
        record(epoch(3, accuracy=None))
    found = read(tmp_path)
    assert found["loss"] == pytest.approx({1: 1, 2: 1 / 2, 3: 1 / 3})
    assert set(found["validation_accuracy"]) == {1, 2}
    assert set(found) == {"loss", "learning_rate", "seconds", "validation_accuracy"}


def test_nothing_is_written_unless_it_is_asked_for():
    with epochs_to_tensorboard(None, 0) as record:
        record(epoch(1))


def test_without_tensorboard_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SettingsError, match=r"catro-deploy\[tensorboard\]"), epochs_to_tensorboard(tmp_path, 0):
        pass
