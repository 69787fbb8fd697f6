"""Logits on the device, of images that are normalised there."""

import base64

import numpy as np

from catro_deploy.agent.agent import run
from catro_deploy.agent.events import Event
from catro_deploy.agent.jobs import ModelFile, VerifyJob
from catro_deploy.agent.verify import normalise
from catro_deploy.runtimes import open_runner
from tests.agent.test_agent import workspace
from tests.onnx_files import write_conv_chain

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
    assert [event.images for event in events] == [3, 3, 1] * 2
    assert result.runtime.startswith("onnxruntime ")
    for name, file in files.items():
        found = np.frombuffer(base64.b64decode(result.logits[name]), "<f4").reshape(7, -1)
        with open_runner("onnxruntime", file, 1) as runner:
            expected = [runner.infer(normalise(images[i : i + 1], MEAN, STD)).reshape(-1) for i in range(7)]
        np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-6)
