import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from catro_deploy.data import Dataset, MemorySplit
from catro_deploy.errors import DataError, MissedError, ModelError, RunFolderError
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.progress import Silent
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan, save_plan
from catro_deploy.stages.export import export
from catro_deploy.stages.verify import verify
from tests.stages import colours


class Counter(Silent):
    """A Progress that counts the steps of its only bar."""

    def __init__(self) -> None:
        self.total = self.steps = 0.0

    def task(self, title, total, done=0):
        self.total = total
        return nullcontext(self)

    def advance(self, steps=1):
        self.steps += steps

    def describe(self, text): ...


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> RunFolder:
    """A run whose original is right about every image, and whose pruned network never predicts blue."""
    run = colours.make_run(tmp_path_factory.mktemp("run"), pruned=colours.blind_to(2))
    export(colours.settings(), run, Silent())
    return run


@pytest.fixture
def run(exported, tmp_path) -> RunFolder:
    """A copy of ``exported`` that the test may change."""
    return RunFolder(Path(shutil.copytree(exported.path, tmp_path / "run")))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_pruned_network_that_lost_a_class(run, dynamic):
    """Blue images get another prediction, all others are right: two thirds of 30 images, and none of the blue ones."""
    settings = colours.settings(export={"dynamic_batch": dynamic}, verify={"batch_size": 7})
    if dynamic:
        export(settings, run, Silent())
    progress = Counter()
    verdict = verify(settings, run, progress)
    assert progress.steps == progress.total == 4 * 30
    content = json.loads(run.verify.read_text())
    assert (content["target"], content["test_images"], content["classes"]) == ("x86-cpu", 30, ["red", "green", "blue"])
    assert content["runtime"].startswith("onnxruntime ")
    assert (content["original"]["torch"], content["original"]["runtime"]) == (1, 1)
    assert content["pruned"]["torch"] == content["pruned"]["runtime"] == pytest.approx(2 / 3)
    assert [(entry["name"], entry["images"], entry["runtime"]) for entry in content["pruned"]["per_class"]] == [
        ("red", 10, 1),
        ("green", 10, 1),
        ("blue", 10, 0),
    ]
    assert content["pruned"]["agreement"] == 1
    # A logit of -1000 has a rounding step of 6e-5 in float32.
    assert 0 <= content["pruned"]["largest_logit_difference"] < 2e-4
    assert content["accuracy_drop_points"] == verdict.accuracy_drop_points == pytest.approx(100 / 3)
    assert (content["passed"], content["problems"], content["max_drop"]) == (True, [], None)


@pytest.mark.parametrize(
    ("output", "layout", "dynamic", "top_k"),
    [("logits", "nchw", False, 0), ("logits", "nhwc", True, 2), ("softmax", "nhwc", False, 2)],
)
def test_raw_pixels_go_to_a_network_that_normalises_them(run, output, layout, dynamic, top_k):
    asked = {"input": "uint8", "layout": layout, "output": output, "dynamic_batch": dynamic, "top_k": top_k}
    settings = colours.settings(export=asked, verify={"batch_size": 7})
    export(settings, run, Silent())
    found = verify(settings, run, Silent())
    assert found.passed
    assert (found.original.runtime, found.pruned.runtime) == (1, pytest.approx(2 / 3))
    assert found.original.agreement == found.pruned.agreement == 1
    # Rounding errors; 0 would mean that nothing was compared. Softmax rounds differently.
    assert 0 < found.original.largest_logit_difference < 1e-5


def test_a_network_that_normalises_pixels_otherwise_does_not_pass(run):
    settings = colours.settings(export={"input": "uint8", "output": "softmax"})
    export(settings, run, Silent())
    proto = onnx.load(run.pruned_onnx)
    (shift,) = [tensor for tensor in proto.graph.initializer if tensor.name == "preprocess/shift"]
    shift.CopyFrom(onnx.numpy_helper.from_array(np.array([-2.0, -1.9, -2.0], np.float32), shift.name))
    onnx.save(proto, run.pruned_onnx)
    with pytest.raises(MissedError, match=r"\bpruned\b.*\b0\.0"):
        verify(settings, run, Silent())


def test_more_lost_than_allowed_is_written_and_then_raised(run):
    with pytest.raises(MissedError) as caught:
        verify(colours.settings(verify={"max_drop": 5.0}), run, Silent())
    assert caught.value.exit_code == 3
    content = json.loads(run.verify.read_text())
    assert content["passed"] is False
    (problem,) = content["problems"]
    assert "33.33 points" in problem
    assert "max_drop allows 5" in problem
    assert problem in caught.value.problem


def test_an_onnx_file_of_other_weights_does_not_pass(run):
    """The file was made before the weights changed one logit by 0.5."""
    changed = colours.blind_to(2)
    changed.fc.bias.data[0] = 0.5
    save_weights(changed, run.weights)
    with pytest.raises(MissedError, match=r"\bpruned\b.*\b0\.5"):
        verify(colours.settings(), run, Silent())
    content = json.loads(run.verify.read_text())
    assert not content["passed"]
    assert content["pruned"]["largest_logit_difference"] == pytest.approx(0.5, abs=1e-4)


def test_large_logits_may_differ_by_more(tmp_path):
    """In float32 logits of a million have a rounding step of 0.06."""
    networks = [colours.ColourNet(3), colours.ColourNet(3)]
    for network in networks:
        network.fc.weight.data *= 1e6 / 3
    run = colours.make_run(tmp_path, *networks)
    export(colours.settings(), run, Silent())
    verify(colours.settings(), run, Silent())
    content = json.loads(run.verify.read_text())
    assert content["pruned"]["largest_logit_difference"] > 0.001
    assert 1 < content["tolerance"] < 1000


def test_a_file_of_another_plan_is_refused(run):
    run.plan.write_text(run.plan.read_text().replace('"50%flops"', '"40%flops"'))
    with pytest.raises(ModelError, match="plan_sha256") as caught:
        verify(colours.settings(), run, Silent())
    assert "catro-deploy export" in caught.value.hint


def test_original_and_pruned_cannot_be_confused(run):
    shutil.copy(run.original_onnx, run.pruned_onnx)
    with pytest.raises(ModelError, match=r"'original'.*'pruned'"):
        verify(colours.settings(), run, Silent())


def test_a_missing_onnx_file_says_what_to_run(run):
    run.pruned_onnx.unlink()
    with pytest.raises(RunFolderError, match="catro-deploy export"):
        verify(colours.settings(), run, Silent())


def test_another_dataset_than_the_plans_is_refused(run):
    plan = load_plan(run)
    save_plan(type(plan)(**(vars(plan) | {"classes": ("red", "green", "violet")})), run.plan)
    with pytest.raises(DataError, match=r"red, green, blue.*red, green, violet"):
        verify(colours.settings(), run, Silent())


def without_blue(settings, size, channels):
    whole = colours.dataset(settings, size, channels)
    keep = whole.test.labels != 2
    test = MemorySplit(whole.test.pixels[torch.from_numpy(keep)], whole.test.labels[keep])
    return type(whole)(**(vars(whole) | {"test": test}))


def test_a_class_without_test_images_is_named(run):
    settings = colours.settings(data={"name": "tests.stages.test_verify:without_blue"})
    with pytest.raises(DataError, match=r"\bblue\b"):
        verify(settings, run, Silent())


def test_the_packed_images_are_gone_afterwards(run):
    verify(colours.settings(), run, Silent())
    assert not run.packed_images.exists()
    run.pruned_onnx.write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"pruned\.onnx"):
        verify(colours.settings(), run, Silent())
    assert not run.packed_images.exists()


def test_weights_that_overflow_are_written_as_null_and_raised(run):
    """Finite weights, infinite logits: the file must still be JSON."""
    huge = colours.ColourNet(3)
    huge.fc.weight.data *= 3e38
    huge.mix.weight.data *= 3e38
    save_weights(huge, run.weights)
    with pytest.raises(MissedError, match=r"\bpruned\b.* not finite"):
        verify(colours.settings(), run, Silent())
    content = json.loads(run.verify.read_text())
    assert content["pruned"]["largest_logit_difference"] is None
    assert content["pruned"]["torch"] == 0


def unlabelled(settings, size, channels):
    """The colour images without their labels, and a white image, which the original classifies as red."""
    known = colours.dataset(settings, size, channels)
    pixels = torch.cat([known.test.pixels, torch.full((1, 3, *size), 255, dtype=torch.uint8)])
    split = MemorySplit(pixels, np.full(len(pixels), -1))
    return Dataset("cameras", (), {}, split, split, split)


def test_agreement_with_the_original_is_reported_for_every_run(run):
    """A network that never predicts blue gives 20 of 30 images the original's prediction."""
    verdict = verify(colours.settings(), run, Silent())
    content = json.loads(run.verify.read_text())
    assert content["labelled"] is True
    assert content["agreement_with_original"]["share"] == pytest.approx(2 / 3)
    assert content["agreement_with_original"]["mean_kl_nats"] == pytest.approx(
        verdict.agreement_with_original.mean_kl_nats
    )
    assert content["agreement_with_original"]["mean_kl_nats"] > 1


def test_without_labels_no_accuracy_is_reported_and_max_drop_limits_agreement(run):
    settings = colours.settings(data={"name": "tests.stages.test_verify:unlabelled"}, verify={"max_drop": 35.0})
    verify(settings, run, Silent())
    content = json.loads(run.verify.read_text())
    assert (content["labelled"], content["test_images"], content["accuracy_drop_points"]) == (False, 31, None)
    assert [content[name][key] for name in ("original", "pruned") for key in ("torch", "runtime")] == [None] * 4
    assert content["original"]["per_class"] == content["pruned"]["per_class"] == []
    found = content["agreement_with_original"]
    assert found["share"] == pytest.approx(21 / 31)
    assert [(one["name"], one["images"], one["share"]) for one in found["per_class"]] == [
        ("red", 11, 1.0),
        ("green", 10, 1.0),
        ("blue", 10, 0.0),
    ]
    limited = settings.model_copy(update={"verify": settings.verify.model_copy(update={"max_drop": 32.0})})
    with pytest.raises(MissedError, match=r"32\.26% .* 32%"):
        verify(limited, run, Silent())
    assert json.loads(run.verify.read_text())["passed"] is False
