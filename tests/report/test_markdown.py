import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from catro_deploy.records import Speedup
from catro_deploy.report.code import infer_code, reproduce_code
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.runtimes import runtimes_words
from tests.report.made import (
    make_bench,
    make_estimate,
    make_finetune,
    make_plan,
    make_report,
    make_runtimes,
    make_shipped,
    make_timed_plan,
    make_verify,
)


def markdown(**changes):
    return to_markdown(make_report(make_plan(**changes), make_verify(), make_bench(), finetune=make_finetune()))


def test_markdown_has_every_part():
    text = markdown()

    assert text.startswith("# cifar\\_resnet20, pruned for x86-cpu\n")
    assert "| Latency p50 | 1.84 ms | 1.00 ms | -45.7% |" in text
    assert "| Parameters | 400 | 100 | -75.0% |" in text
    assert "| layer0.conv1 | 16 | 4 | 25% | 0.125 | 3 | layer0.conv1 |" in text
    assert "| clock before | 3,720 MHz |" in text
    assert 'catro_deploy.load("RUN_FOLDER")' in text
    assert "3 epochs over 9,000 training images on cpu in 6 s: validation accuracy 41.00% -> 99.00%." in text


def test_settings_that_were_left_unset_are_not_called_missing_records():
    text = markdown(settings={"budget": "0.5x", "max_size": None})
    assert "| max size | not set |" in text


def test_class_names_cannot_break_a_table():
    rows = [line for line in markdown().splitlines() if "Stop" in line and line.startswith("|")]

    assert rows == [r'| \<b>"Stop" \& go\</b> \| \*now\* | 2,500 | 99.44% | 99.12% | -0.32 |']


def test_tables_have_as_many_cells_in_every_row():
    for table in re.findall(r"(?:^\|.*\n)+", markdown(), re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def timed(budget="0.5x"):
    bench = make_bench(2.5, 2.0, 3.125, original_us=1000)
    return to_markdown(make_report(make_timed_plan(budget), make_verify(), bench, finetune=make_finetune()))


def test_markdown_explains_how_latency_decided():
    text = timed()

    assert "Budget: 0.5x of the original's latency. Used: 49.00% of the original's multiply-accumulates" in text
    assert "| Measured | 0.400x |" in text
    assert "| 1 | 0.490x | 0.520x | 0.510x to 0.530x | 104.0% | 530 us of 1.02 ms |" in text
    assert "| layer0.conv1 | 16 | 4 | none | 2, 4, 16 |" in text
    assert "| gone.conv1 | 16 | removed | 4 | 4, 8, 16 |" in text
    assert "| layer0.conv1 | 600 | 150 | -75.0% |" in text
    assert "| gone.conv2 | 80.0 | removed | -100.0% |" in text
    assert "| Networks held out from the fit | 40 | 90.0% | 97.5% | 3.1% | 0.950 |" in text
    assert "1 residual branch is removed, named by the last layer: gone.conv2." in text


def test_rounds_of_a_budget_in_microseconds_are_in_microseconds():
    # 0.51 and 0.53 of 1020 us.
    assert "| 1 | 490 us | 530 us | 520 us to 541 us | 132.6% | 530 us of 1.02 ms |" in timed("400us")


def test_markdown_of_an_estimate_says_so_at_every_table():
    text = to_markdown(make_report(make_estimate(), finetune=make_finetune()))

    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    estimates = [f"{name} (estimate)" for name in ("Budget", "Staircases", "Time by layer", "Cost model")]
    assert [heading for heading in headings if "estimate" in heading] == estimates
    assert "| Latency, estimate | 1.00 ms | 0.480 ms | -52.0% |" in text
    assert "| Accuracy, validation images, by PyTorch | not measured | 99.00% |  |" in text
    assert "| Estimate | 0.480x |" in text
    assert "Layer | Before, µs (estimate) | After, µs (estimate)" in text
    assert "## Accuracy by class" not in text
    assert "catro-deploy bench" not in text


@pytest.mark.parametrize("text", [timed(), timed("400us"), to_markdown(make_report(make_estimate()))])
def test_tables_of_latency_have_as_many_cells_in_every_row(text):
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["speed_limits"], " --classes speed_limits\n"),
        (["30 km/h", 2], " --classes '30 km/h,2'\n"),
        (["a, b"], " --classes 1,2\n"),
        ([], "\n"),
    ],
)
def test_the_command_that_reproduces_names_the_classes_as_they_were_asked_for(wanted, words):
    report = make_report(make_plan(settings={"classes": wanted}), make_verify(), make_bench())

    assert f"catro-deploy run --target x86-cpu --budget 50%flops{words}" in reproduce_code(report)


@pytest.mark.parametrize("channels", [3, 1])
def test_the_program_that_classifies_images_runs(tmp_path, channels):
    from onnx import TensorProto, helper, save

    # Two logits: the mean of the normalised image, and zero.
    mean, std = ((0.5, 0.25, 0.125), (0.25, 0.5, 1.0)) if channels == 3 else ((0.5,), (0.25,))
    nodes = [
        helper.make_node("ReduceMean", ["image", "axes"], ["mean"], keepdims=0),
        helper.make_node("Reshape", ["mean", "shape"], ["one"]),
        helper.make_node("Concat", ["one", "zero"], ["logits"], axis=1),
    ]
    constants = [
        helper.make_tensor("axes", TensorProto.INT64, [3], [1, 2, 3]),
        helper.make_tensor("shape", TensorProto.INT64, [2], [1, 1]),
        helper.make_tensor("zero", TensorProto.FLOAT, [1, 1], [0.0]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, channels, 4, 6])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 2])
    graph = helper.make_graph(nodes, "mean", [image], [logits], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(proto, {"classes": '["bright", "dark"]'})
    save(proto, tmp_path / "pruned.onnx")
    whole = make_shipped(file="pruned.onnx")
    colours = "RGB" if channels == 3 else "grey"
    given = replace(whole.input, shape=(1, channels, 4, 6), colours=colours, mean=mean, std=std)
    (tmp_path / "infer.py").write_text(infer_code(replace(whole, input=given)), encoding="utf-8")

    colour, sixteen_bits = np.full((9, 9, 3), 1, np.uint8), np.full((9, 9), 257, np.uint16)
    for brightness, prediction, image in ((255, "bright", colour), (0, "dark", colour), (51, "dark", sixteen_bits)):
        Image.fromarray(brightness * image).save(tmp_path / "image.png")
        done = subprocess.run(
            [sys.executable, "infer.py", "image.png"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env=dict(os.environ),
        )
        # The mean over the channels of (1 - mean) / std, or of -mean / std, and zero.
        logit = np.mean([(brightness / 255 - m) / s for m, s in zip(mean, std, strict=True)])
        certain = 1 / (1 + np.exp(-abs(logit)))
        assert done.stdout.startswith(f"image.png: {prediction} {certain:.2%}, ")


def test_runtimes_whose_intervals_overlap_are_named_with_the_fastest():
    found = make_runtimes()
    *others, best = found.rows
    near = replace(best, p50_us=990.0, speedup=Speedup(2000 / 990, (1.99, 2.04)))
    words = runtimes_words(replace(found, rows=(*others, near)))
    assert "Within the noise of it: fp32 by onnxruntime 1.2.3." in words


def test_the_matrix_of_runtimes_names_the_files_of_the_fastest():
    text = to_markdown(
        replace(
            make_report(make_plan(), make_verify(), make_bench(), finetune=make_finetune()), runtimes=make_runtimes()
        )
    )
    assert "## Runtimes" in text
    assert "The pruned network has its smallest median in fp32 by openvino 1.2.3, from pruned.xml." in text
    assert "Within the noise" not in text
    assert "It is not what this run ships." in text
    assert "| openvino 1.2.3 | pruned | fp32 | 800 us | 2.50x (2.49 to 2.51) | 90.00% |" in text
    assert "## Runtimes" not in to_markdown(
        make_report(make_plan(), make_verify(), make_bench(), finetune=make_finetune())
    )


def test_a_network_that_resizes_its_images_says_so():
    assert "| Computes at | 32 | 24x20 | resizes its images itself |" in markdown(resized_to=(24, 20))
    assert "Computes at" not in markdown()
