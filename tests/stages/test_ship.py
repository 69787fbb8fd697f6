import json

import numpy as np
import onnxruntime
import pytest

from catro_deploy.errors import RunFolderError
from catro_deploy.files import file_hash
from catro_deploy.progress import Silent
from catro_deploy.records.files import content_of
from catro_deploy.runs.records import save
from catro_deploy.stages.export import export
from catro_deploy.stages.ship import ship
from tests.report.made import make_quantize
from tests.stages import colours

PARTS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def shipped(tmp_path, **sections):
    """A run that was exported and shipped, and what model.json says."""
    run, settings = colours.make_run(tmp_path), colours.settings(**sections)
    export(settings, run, Silent())
    content = ship(settings, run, Silent())
    assert json.loads(run.shipped.read_text()) == content_of(content)
    return run, content


def test_the_record_alone_is_enough_to_use_the_file(tmp_path):
    run, content = shipped(tmp_path)
    file = run.shipped.parent / content.file
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    given = content.input
    for name, colour in PARTS.items():
        pixels = np.broadcast_to(np.array(colour, given.type)[:, None, None], given.shape[1:])
        mean, std = (np.array(values, given.type)[:, None, None] for values in (given.mean, given.std))
        batch = ((pixels / 255 - mean) / std)[None]
        assert batch.shape == given.shape
        assert [batch.min(), batch.max()] == list(given.range) == [-2.0, 2.0]
        (logits,) = session.run([content.output.name], {given.name: batch})
        assert logits.shape == content.output.shape
        assert content.classes[int(logits[0].argmax())] == name
    assert (given.layout, given.colours) == ("NCHW", "RGB")


def test_the_record_names_the_file_and_the_plan(tmp_path):
    run, content = shipped(tmp_path)
    assert (content.file, content.precision) == ("pruned.onnx", "fp32")
    assert content.bytes == run.pruned_onnx.stat().st_size
    assert content.original_bytes == run.original_onnx.stat().st_size
    assert content.sha256 == file_hash(run.pruned_onnx) == file_hash(run.shipped.parent / "pruned.onnx")
    assert content.plan_sha256 == file_hash(run.plan)


def test_a_batch_that_may_be_any_has_a_name(tmp_path):
    _, content = shipped(tmp_path, export={"dynamic_batch": True})
    assert content.input.shape == ("batch", 3, 8, 8)
    assert content.output.shape == ("batch", 3)


def test_the_precision_that_is_served_is_shipped_and_nothing_else_stays(tmp_path):
    run, _ = shipped(tmp_path)
    settings = colours.settings(prune={"target": "jetson-orin"})
    export(settings, run, Silent())
    content = ship(settings, run, Silent())
    assert (content.file, content.precision) == ("pruned.fp16.onnx", "fp16")
    assert {path.name for path in run.shipped.parent.iterdir()} == {"pruned.fp16.onnx", "model.json"}

    save(make_quantize(shipped="fp32"), run)
    content = ship(colours.settings(quantize={"precision": "auto"}), run, Silent())
    assert {path.name for path in run.shipped.parent.iterdir()} == {"pruned.onnx", "model.json"}


def test_without_an_exported_network_the_stage_says_what_to_run(tmp_path):
    run = colours.make_run(tmp_path)
    with pytest.raises(RunFolderError, match="catro-deploy export"):
        ship(colours.settings(), run, Silent())
    assert not run.shipped.exists()
