"""The same networks in every installed runtime, with real inferences."""

from dataclasses import replace

import pytest

from catro_deploy.errors import UsageError
from catro_deploy.progress import Silent
from catro_deploy.records import Runtimes
from catro_deploy.report.runtimes import runtimes_table, runtimes_words
from catro_deploy.runs.records import load
from catro_deploy.stages.export import export
from catro_deploy.stages.runtimes import runtimes
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import compared_runtimes
from tests.stages import colours


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A run with three colours whose pruned network never predicts blue, and the comparison of its runtimes."""
    run = colours.make_run(tmp_path_factory.mktemp("run"), pruned=colours.blind_to(2))
    settings = colours.settings(bench={"protocol": "quick", "runtimes": ["auto"]})
    export(settings, run, Silent())
    return run, runtimes(settings, run, Silent())


def test_each_runtime_has_each_network_with_its_latency_and_accuracy(compared):
    run, found = compared
    assert load(Runtimes, run) == found
    assert [(row.runtime.split()[0], row.network, row.precision) for row in found.rows] == [
        ("onnxruntime", "original", "fp32"),
        ("onnxruntime", "pruned", "fp32"),
        ("openvino", "original", "fp32"),
        ("openvino", "pruned", "fp32"),
    ]
    assert [row.accuracy for row in found.rows] == pytest.approx([1, 2 / 3, 1, 2 / 3], abs=0.01)
    assert [row.served for row in found.rows] == [False, True, False, False]
    assert found.test_images == 3 * colours.PER_CLASS
    assert found.missing == {}
    for row in found.rows:
        assert row.speedup.ci95[0] <= row.speedup.median <= row.speedup.ci95[1]


def test_the_files_of_the_fastest_are_there_and_named(compared):
    run, found = compared
    best = found.rows[found.fastest]
    assert best.network == "pruned"
    assert best.p50_us == min(row.p50_us for row in found.rows if row.network == "pruned")
    assert all((run.path / name).is_file() for name in best.files)
    assert best.files == (("pruned.xml", "pruned.bin") if best.runtime.startswith("openvino") else ("pruned.onnx",))
    assert " and ".join(best.files) in runtimes_words(found)


def test_in_words_and_as_a_table(compared):
    _, found = compared
    table = runtimes_table(found)
    assert [row[6] for row in table.rows] == ["", "served", "", ""]
    assert table.rows[0][4] == "1.00x (1.00 to 1.00)"
    other = replace(found, fastest=3, missing={"openvino-gpu": "OpenVINO finds no GPU here."})
    assert "not what this run ships" in runtimes_words(other)
    assert "Without openvino-gpu: OpenVINO finds no GPU here." in runtimes_words(other)
    assert "not what this run ships" not in runtimes_words(replace(found, fastest=1))


def test_which_runtimes_are_compared():
    cpu, ov = load_target("x86-cpu"), load_target("x86-cpu-openvino")
    assert compared_runtimes(cpu, ["auto"]) == ("onnxruntime", "openvino")
    assert compared_runtimes(ov, ["auto"]) == ("openvino", "onnxruntime")
    assert compared_runtimes(cpu, ["openvino"]) == ("onnxruntime", "openvino")
    assert compared_runtimes(load_target("x86-gpu"), ["auto"]) == ("onnxruntime-cuda",)
    for target, name in ((cpu, "tensorrt"), (cpu, "tflite"), (load_target("x86-gpu"), "tensorrt")):
        with pytest.raises(UsageError, match=name) as caught:
            compared_runtimes(target, [name])
        assert "--runtimes auto" in caught.value.hint
