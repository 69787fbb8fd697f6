"""Logits that arrive in pieces and stay in files."""

import resource
import tracemalloc

import numpy as np
import pytest

from catro_deploy.agent.probabilities import log_softmax
from catro_deploy.errors import MessageError
from catro_deploy.runs.folder import RunFolder
from catro_deploy.stages.logits import log_probabilities
from catro_deploy.stages.stored_logits import stored_logits
from catro_deploy.stages.verdict import compare, compare_with_original
from catro_deploy.statistics.agreement import largest_finite, mean_kl_nats

IMAGES, CLASSES = 4000, 3000


def test_they_are_read_as_they_were_written_and_leave_no_file(tmp_path):
    logits = np.arange(12, dtype=np.float32).reshape(4, 3)
    with stored_logits(tmp_path, ["net"]) as stored:
        for piece in (logits.tobytes()[:7], logits.tobytes()[7:]):
            stored["net"].append(piece)
        found = stored["net"].array(4, 3)
    assert np.array_equal(found, logits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_another_number_of_rows_is_refused(tmp_path, rows):
    with stored_logits(tmp_path, ["net"]) as stored:
        stored["net"].append(bytes(rows * 3 * 4))
        with pytest.raises(MessageError, match=rf"\b{rows}\b.*\b3\b.*\b4\b"):
            stored["net"].array(4, 3)


def fill(folder, pieces):
    with stored_logits(folder, ["net"]) as stored:
        for _ in range(pieces):
            stored["net"].append(bytes(2**20 // pieces))


@pytest.mark.parametrize("pieces", [1, 1000])
def test_an_error_about_a_full_disk_names_the_folder(tmp_path, pieces):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, hard))  # a larger file fails as on a full disk
    try:
        with pytest.raises(OSError, match=f"File too large: '{tmp_path}'"):
            fill(tmp_path, pieces)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_memory_does_not_grow_with_images_and_classes(tmp_path):
    """Three networks with 48 MB of logits each, compared in less memory than the logits of one would take."""
    names = [str(label) for label in range(CLASSES)]
    labels = np.arange(IMAGES) % CLASSES
    tracemalloc.start()
    try:
        with stored_logits(tmp_path, ["torch", "original", "pruned"]) as stored:
            for seed, one in enumerate(stored.values()):
                generator = np.random.default_rng(seed)
                for _ in range(IMAGES // 100):
                    one.append(generator.standard_normal((100, CLASSES), np.float32).tobytes())
            by_torch, original, pruned = (one.array(IMAGES, CLASSES) for one in stored.values())
        compare(by_torch, original, labels, names)
        compare_with_original(original, pruned, names, labels)
        assert largest_finite(by_torch) > 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 45e6
    whole = np.array(original[:50]), np.array(pruned[:50])
    assert mean_kl_nats(original[:50], pruned[:50]) == pytest.approx(mean_kl_nats(*whole))


def peak_of_log_probabilities(run, images):
    """Peak memory, in bytes, for the log-probabilities of ``images`` x ``CLASSES`` logits in a file."""
    generator = np.random.default_rng(0)
    with stored_logits(run.path, ["net"]) as stored:
        for _ in range(images // 100):
            stored["net"].append(generator.normal(0, 30, (100, CLASSES)).astype("<f4").tobytes())
        logits = stored["net"].array(images, CLASSES)
    tracemalloc.start()
    try:
        found = log_probabilities(run, {"net": logits}, 64)["net"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.shape == logits.shape
    assert np.array_equal(found[-70:], log_softmax(logits[-70:]).astype(np.float32))
    return peak


def test_memory_of_log_probabilities_does_not_grow_with_images(tmp_path):
    run = RunFolder(tmp_path)
    few, many = (peak_of_log_probabilities(run, images) for images in (200, 2000))
    assert many < 1.2 * few < 0.5 * 2000 * CLASSES * 4
    assert list(tmp_path.iterdir()) == []
