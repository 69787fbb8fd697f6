"""Batches read ahead by worker processes: equal to those without workers, errors with hints, and killed workers."""

import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from catro_deploy.data.base import Part, Subset
from catro_deploy.data.files import FileSplit, as_files
from catro_deploy.data.form import ImageForm
from catro_deploy.errors import DataError, FaultError
from catro_deploy.training import reading
from catro_deploy.training.evaluate import predict
from catro_deploy.training.reading import read_ahead, read_batches, workers_for

PARTS = [np.arange(start, start + 8) for start in range(0, 40, 8)]


@pytest.fixture
def paths(tmp_path):
    found = [tmp_path / f"{i:02d}.png" for i in range(40)]
    for number, path in enumerate(found):
        Image.new("L", (8, 8), number).save(path)
    return found


def split_of(paths, workers, remember=False):
    return FileSplit(paths, np.arange(40) % 4, ImageForm((8, 8), 1), remember=remember, workers=workers)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_give_the_same_batches_in_order(paths, workers):
    found = list(read_batches(split_of(paths, workers), PARTS))
    assert [batch[:, 0, 0, 0].tolist() for batch in found] == [part.tolist() for part in PARTS]
    assert all(batch.dtype == torch.uint8 for batch in found)


def test_worker_processes_decode(paths):
    def process_id(part):
        return torch.tensor([os.getpid()])

    assert {int(pid) for pid in read_ahead(process_id, PARTS, 0)} == {os.getpid()}
    found = {int(pid) for pid in read_ahead(process_id, PARTS, 2)}
    assert len(found) == 2
    assert os.getpid() not in found


def test_a_corrupt_image_is_named_by_a_worker_with_what_to_do(paths):
    paths[20].write_bytes(b"")
    batches = read_batches(split_of(paths, 2), PARTS)
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises(DataError) as caught:
        next(batches)
    assert caught.value.problem.startswith(f"The image {paths[20]} cannot be read")
    assert "skip_corrupt" in caught.value.hint


def test_a_killed_worker_is_an_error_with_what_to_do():
    def die(part):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(FaultError) as caught:
        list(read_ahead(die, PARTS, 1))
    assert "lower workers" in caught.value.hint


def test_reading_does_not_move_the_callers_random_numbers(paths):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    list(read_batches(split_of(paths, 1), PARTS))
    assert torch.equal(torch.rand(3), expected)


def test_predictions_are_those_without_workers(paths):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    alone, helped = (predict(model, split_of(paths, n), (0.5,), (0.5,), 16) for n in (0, 2))
    assert alone.shape == (40, 4)
    assert torch.equal(alone, helped)


def test_parts_of_files_are_files(paths):
    split = split_of(paths, 3)
    subset = Subset(split, (1, 3))
    for part in (subset, Part(subset, np.array([4, 0]), np.array([0, 0]))):
        files = as_files(part)
        every = np.arange(len(part.labels))
        assert files.workers == 3
        assert torch.equal(files.images(every), part.images(every))
        assert files.labels.tolist() == part.labels.tolist()
    assert as_files(split) is split


def test_what_is_remembered_needs_no_worker(paths, monkeypatch):
    monkeypatch.setattr(reading, "workers_for", lambda *_: pytest.fail("workers for what is in memory"))
    assert len(list(read_batches(split_of(paths, 2, remember=True), PARTS))) == len(PARTS)


def test_workers_by_cores_processes_and_shared_memory(paths, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(reading.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**9}))
    assert workers_for(split_of(paths, None), 8) == 6
    assert workers_for(split_of(paths, 20), 8) == 20
    assert workers_for(split_of(paths, 0), 8) == 0
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert workers_for(split_of(paths, None), 8) == 2
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    # Three batches of 8 images of 64 bytes for each worker.
    monkeypatch.setattr(reading.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2 * 3 * 8 * 64 + 1}))
    assert workers_for(split_of(paths, None), 8) == 2
