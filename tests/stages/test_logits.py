"""Images packed for the device."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from catro_deploy.runs.folder import RunFolder
from catro_deploy.stages.logits import packed


class Split:
    """Images whose pixels are all the number of the image."""

    def __init__(self, count: int) -> None:
        self.labels = np.zeros(count, np.int64)

    def images(self, indices: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(indices).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4)


class Plan:
    input_shape = (3, 4, 4)


def test_they_are_all_there_while_the_block_lasts(tmp_path):
    run = RunFolder(tmp_path)
    with packed(run, Split(10), Plan, 4) as pixels:
        assert pixels.shape == (10, 3, 4, 4)
        assert pixels.dtype == np.uint8
        assert pixels[:, 0, 0, 0].tolist() == list(range(10))
        assert np.array_equal(np.load(run.packed_images), pixels)
    assert not run.packed_images.exists()


FILL = """
import sys
from pathlib import Path
from catro_deploy.runs.folder import RunFolder
from catro_deploy.stages.logits import packed
from tests.stages.test_logits import Plan, Split
try:
    with packed(RunFolder(Path(sys.argv[1])), Split(4000), Plan, 64):
        pass
except OSError as error:
    print(error.filename, error.strerror)
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    """In a separate process: a memory-mapped file on a full disk would kill it."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        done = subprocess.run([sys.executable, "-c", FILL, str(tmp_path)], capture_output=True, text=True, check=True)
        assert done.stdout == f"{RunFolder(tmp_path).packed_images} No space left on device\n"
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
