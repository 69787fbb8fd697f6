"""Logits on the device, for images that are normalised there."""

import numpy as np

from catro_deploy.agent.agent import run
from catro_deploy.agent.events import Event, ImagesDone, LogitsPiece
from catro_deploy.agent.images import normalise
from catro_deploy.agent.jobs import ModelFile, VerifyJob
from catro_deploy.agent.pieces import PIECE_BYTES, decoded
from catro_deploy.runtimes import open_runner
from tests.agent.test_agent import workspace
from tests.onnx_files import write_conv_chain, write_linear

MEAN, STD = (0.3403, 0.3121, 0.3214), (0.2724, 0.2608, 0.2669)


def test_logits_of_all_images_in_their_order(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (7, 3, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    files = {
        "one": write_conv_chain(tmp_path / "one.onnx", channels=3, size=8),
        "any": write_conv_chain(tmp_path / "any.onnx", channels=3, size=8, batch="batch"),
    }
    events: list[Event] = []
    models = {name: ModelFile(file.name, {}) for name, file in files.items()}
    job = VerifyJob("onnxruntime", 1, None, models, images="images.npy", batch_size=3, mean=MEAN, std=STD)
    result = run(job, workspace(tmp_path), events.append)
    assert [event.images for event in events if isinstance(event, ImagesDone)] == [3, 3, 1] * 2
    assert result.runtime.startswith("onnxruntime ")
    for name, file in files.items():
        found = logits_of(name, events).reshape(7, -1)
        with open_runner("onnxruntime", file, 1) as runner:
            expected = [runner.infer(normalise(images[i : i + 1], MEAN, STD)).reshape(-1) for i in range(7)]
        np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-6)


def logits_of(name: str, events: list[Event]) -> np.ndarray:
    pieces = [event.base64 for event in events if isinstance(event, LogitsPiece) and event.model == name]
    return np.frombuffer(b"".join(map(decoded, pieces)), "<f4")


def test_no_event_is_large_however_many_classes_there_are(tmp_path):
    """1024 images of 1000 classes in one batch are 4 MB of logits."""
    images = np.random.default_rng(0).integers(0, 256, (1024, 1, 1, 1), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    weights = np.random.default_rng(1).standard_normal((1, 1000)).astype(np.float32)
    write_linear(tmp_path / "wide.onnx", weights)
    events: list[Event] = []
    job = VerifyJob("onnxruntime", 1, None, {"wide": ModelFile("wide.onnx", {})}, "images.npy", 1024, (0.5,), (0.5,))
    run(job, workspace(tmp_path), events.append)
    sizes = [len(event.base64) for event in events if isinstance(event, LogitsPiece)]
    assert len(sizes) == 4
    assert max(sizes) <= 4 * PIECE_BYTES / 3 + 4
    expected = normalise(images, (0.5,), (0.5,)).reshape(1024, 1) @ weights
    np.testing.assert_allclose(logits_of("wide", events).reshape(1024, 1000), expected, rtol=1e-5, atol=1e-6)
