"""Outputs are in the order in which the classes are named, from the command line to the shipped file.

The file is checked against the typed names and the image folders, without using the package.
"""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

import catro_deploy
from catro_deploy.files import write_text
from catro_deploy.runs.folder import RunFolder
from tests.tiny import command, exit_code_of

pytestmark = pytest.mark.slow

TRAIN = "\n[train]\nepochs = 20\nbatch_size = 16\ncompute = 'cpu'\n"


@pytest.fixture
def work(tiny):
    """A working folder with a baseline to train, so that a wrong order shows, and a group with its own order."""
    (tiny / "tiny.safetensors").unlink()
    text = (tiny / "catro.toml").read_text() + TRAIN
    write_text(
        tiny / "catro.toml", text.replace("\nsize = 16\n", '\nsize = 16\ngroups = {mine = ["even", "across"]}\n')
    )
    return tiny


def accuracy(file, classes, data):
    """Share of the test images of ``classes`` whose largest logit is at the index of their folder's name."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    right = []
    for place, name in enumerate(classes):
        for path in sorted((data / "test" / name).iterdir()):
            pixels = (np.asarray(Image.open(path), np.float32) / 255 - 0.5) / 0.25
            (logits,) = session.run(None, {"image": pixels.transpose(2, 0, 1)[None]})
            right.append(int(logits[0].argmax()) == place)
    return float(np.mean(right))


@pytest.mark.parametrize(
    ("typed", "classes"),
    [
        ("even,down", ("even", "down")),
        ("even,down,across", ("even", "down", "across")),
        ("down,mine", ("down", "even", "across")),
    ],
)
def test_the_outputs_of_the_shipped_network_are_in_the_order_typed(work, typed, classes):
    done = command("run", "--classes", typed, "--epochs", "2")
    (path,) = (work / "runs").iterdir()
    assert done.exit_code == exit_code_of(path), done.stderr
    run = RunFolder(path)
    report = json.loads(run.report("json").read_text())
    assert tuple(report["classes"]) == classes
    assert [row["name"] for row in report["per_class"]] == list(classes)
    for network, file in (("original", run.original_onnx), ("pruned", run.pruned_onnx)):
        found = accuracy(file, classes, work / "data")
        assert found == report[network]["accuracy"]
        assert found > 0.9  # it would be far lower in another order
        metadata = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
        assert tuple(json.loads(metadata["classes"])) == classes
    shipped, _, outputs = done.stdout.splitlines()[-3:]  # the terminal output is enough to use the network
    assert outputs == "outputs: " + ", ".join(f"{place} {name}" for place, name in enumerate(classes))
    file = shipped.removeprefix("ship: ").partition(" (")[0]
    assert accuracy(work / file, classes, work / "data") == report["pruned"]["accuracy"]
    assert ", ".join(f"{place} {name}" for place, name in enumerate(classes)) in run.report("md").read_text()
    assert catro_deploy.load(run.path).fc.out_features == len(classes)
