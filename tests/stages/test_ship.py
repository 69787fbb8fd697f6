import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from catro_deploy import networks
from catro_deploy.data.files import decode
from catro_deploy.data.form import ImageForm
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import RunFolderError
from catro_deploy.files import file_hash
from catro_deploy.progress import Silent
from catro_deploy.records import Port
from catro_deploy.records.files import content_of
from catro_deploy.report.shipping import shipping_words
from catro_deploy.runs.plan import load_plan, save_plan
from catro_deploy.runs.records import save
from catro_deploy.stages.export import export
from catro_deploy.stages.ship import ship
from tests.report.made import make_quantize
from tests.runtimes.test_telemetry import undecided
from tests.stages import colours

PARTS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def shipped(tmp_path, size=(8, 8), **sections):
    """A run with images of ``size`` that was exported and shipped, and the record in model.json."""
    run, settings = colours.make_run(tmp_path), colours.settings(**sections)
    save_plan(replace(load_plan(run), input_shape=(3, *size)), run.plan)
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
    assert {path.name for path in run.shipped.parent.iterdir()} == {"pruned.fp16.onnx", "model.json", "infer.py"}

    save(make_quantize(shipped="fp32"), run)
    content = ship(colours.settings(quantize={"precision": "auto"}), run, Silent())
    assert {path.name for path in run.shipped.parent.iterdir()} == {"pruned.onnx", "model.json", "infer.py"}


def test_without_an_exported_network_the_stage_says_what_to_run(tmp_path):
    run = colours.make_run(tmp_path)
    with pytest.raises(RunFolderError, match="catro-deploy export"):
        ship(colours.settings(), run, Silent())
    assert not run.shipped.exists()


def test_raw_pixels_are_labelled_as_raw(tmp_path):
    _, content = shipped(tmp_path, export={"input": "uint8", "layout": "nhwc", "output": "softmax", "top_k": 2})
    given = content.input
    assert (given.type, given.shape, given.layout, given.values) == ("uint8", (1, 8, 8, 3), "NHWC", "pixel")
    assert given.range == (0, 255)
    assert (content.output.name, content.output.shape) == ("probabilities", (1, 3))
    assert content.top == (Port("top_values", "float32", (1, 2)), Port("top_classes", "int64", (1, 2)))


def photographs(folder):
    """Image files of several sizes and modes, with gradients so that a different resize or crop shows."""
    generator, files = np.random.default_rng(0), []
    for place, (width, height) in enumerate([(31, 20), (9, 40), (16, 16), (8, 8)]):
        coarse = Image.fromarray(generator.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        image = coarse.resize((width, height), Image.Resampling.BICUBIC)
        files.append(folder / f"{place}.{'png' if place else 'jpg'}")
        (image.convert("P") if place == 2 else image).save(files[-1])
    return files


@pytest.mark.parametrize(
    ("export", "data", "target"),
    [
        ({}, {}, "x86-cpu"),
        ({}, {"resize": 7, "size": "6x10"}, "x86-cpu"),
        ({"input": "uint8"}, {"resize": "12x9", "size": 8, "interpolation": "lanczos"}, "x86-cpu"),
        (
            {"input": "uint8", "layout": "nhwc", "output": "softmax", "dynamic_batch": True, "top_k": 2},
            {"resize": 11, "size": 8, "interpolation": "bicubic"},
            "x86-cpu",
        ),
        ({"layout": "nhwc"}, {"interpolation": "nearest"}, "jetson-orin"),
        ({}, {}, "x86-cpu-openvino"),
        (
            {"input": "uint8", "layout": "nhwc", "output": "softmax", "dynamic_batch": True, "top_k": 2},
            {},
            "x86-cpu-openvino",
        ),
    ],
)
def test_the_program_next_to_the_file_gives_the_predictions_of_the_pipeline(tmp_path, export, data, target):
    data = {"name": "tests.stages.colours:dataset"} | data
    settings = colours.settings(data=data).data
    run, content = shipped(tmp_path, settings.size or (8, 8), export=export, data=data, prune={"target": target})
    files = photographs(tmp_path)
    command = [sys.executable, "-W", "error", str(run.shipped.parent / "infer.py"), *map(str, files)]
    home = tmp_path / "home"
    done = subprocess.run(command, env=undecided(home), cwd="/", capture_output=True, text=True, check=True)
    assert not list(home.iterdir())  # no telemetry
    lines = done.stdout.splitlines()
    assert len(lines) == len(files)
    form = ImageForm(settings.size or (8, 8), 3, settings.resize, settings.interpolation)
    network = networks.load(run)
    for file, line in zip(files, lines, strict=True):
        image = torch.from_numpy(decode(file, form).copy())[None]
        with torch.inference_mode():
            expected = network(normalise(image, content.input.mean, content.input.std)).softmax(1)[0]
        found = dict(re.findall(r"(\w+) ([\d.]+)%", line.removeprefix(f"{file}: ")))
        shown = export.get("top_k", len(content.classes))
        assert list(found) == [content.classes[index] for index in expected.argsort(descending=True)[:shown]]
        for name, value in found.items():
            precise = 100 * float(expected[content.classes.index(name)])
            assert float(value) == pytest.approx(precise, abs=0.2 if target == "jetson-orin" else 0.006)


def test_for_openvino_the_network_is_shipped_as_ir_too(tmp_path):
    run, content = shipped(tmp_path, prune={"target": "x86-cpu-openvino"})
    names = {"pruned.onnx", "pruned.xml", "pruned.bin", "model.json", "infer.py"}
    assert {path.name for path in run.shipped.parent.iterdir()} == names
    assert (content.file, content.runtime) == ("pruned.onnx", "openvino")
    files = [run.shipped.parent / name for name in ("pruned.xml", "pruned.bin")]
    assert [(one.file, one.bytes, one.sha256) for one in content.ir] == [
        (file.name, file.stat().st_size, file_hash(file)) for file in files
    ]
    named = dict(shipping_words(content))["for OpenVINO"]
    assert named == ", ".join(f"ship/{file.name} ({file.stat().st_size / 1000:,.1f} kB)" for file in files)
    ship(colours.settings(), run, Silent())
    assert not list(run.shipped.parent.glob("*.xml"))


def test_the_program_skips_files_that_it_cannot_read_and_without_files_says_how_it_is_called(tmp_path):
    run, _ = shipped(tmp_path)
    image, *_ = photographs(tmp_path)
    text = tmp_path / "text.png"
    text.write_text("no image")
    floats, huge = tmp_path / "floats.tif", tmp_path / "huge.png"
    Image.fromarray(np.ones((8, 8), np.float32)).save(floats)
    Image.new("1", (20_000, 20_000)).save(huge)
    bad = [str(text), "missing.png", str(floats), str(huge)]
    program = [sys.executable, str(run.shipped.parent / "infer.py")]
    done = subprocess.run([*program, *bad, str(image)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{image}: ")
    assert [line.partition(" cannot be read: ")[0] for line in done.stderr.splitlines()] == bad
    usage = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (usage.returncode, usage.stdout) == (1, "")
    assert usage.stderr.startswith("Classify images: python infer.py IMAGE ...")


def test_for_tensorrt_the_program_says_what_to_use_on_the_device(tmp_path):
    run, _ = shipped(tmp_path, prune={"target": "jetson-orin"})
    text = (run.shipped.parent / "infer.py").read_text()
    assert "trtexec --stronglyTyped --onnx=pruned.fp16.onnx" in text
