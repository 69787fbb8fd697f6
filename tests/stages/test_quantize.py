"""The precision that is served: how it is chosen, and the stage on a network that takes seconds."""

import re
import shutil
from html import unescape

import numpy as np
import onnx
import pytest

from catro_deploy import resources
from catro_deploy.assessment.basis import Basis, Limits
from catro_deploy.calibration import load_int8_recipe
from catro_deploy.errors import ModelError, NumericsError
from catro_deploy.files import file_hash
from catro_deploy.progress import Silent
from catro_deploy.records import Bench, Candidate, Precisions, Quantize, Verify
from catro_deploy.runs.records import load
from catro_deploy.runtimes import open_runner
from catro_deploy.stages.integers import Int8Images, Int8Job, write_int8
from catro_deploy.stages.quantize import decide
from catro_deploy.statistics.agreement import accuracy_of
from catro_deploy.targets import load_target
from catro_deploy.training import History
from tests.precision.nets import images, network, run
from tests.report.made import slower_by
from tests.tiny import command, exit_code_of


def candidate(ratio, accuracy=0.99, width=0.01, kl=0.0):
    return Candidate(accuracy, 1.0, kl, slower_by(ratio, width), 1000 * ratio, kl)


def decided(found, own, least, metric="accuracy", **few):
    """The decision on 45 validation images."""
    cost = few.pop("cost", None)
    return decide(found, own, Basis(metric, np.zeros(45, np.int64), 0.99, change_cost_nats=cost), Limits(least, **few))


def test_the_fastest_that_keeps_the_accuracy_is_served():
    found = {"fp32": candidate(0.5), "fp16": candidate(0.6), "int8": candidate(0.25, accuracy=0.985)}
    shipped, lost = decided(found, "fp32", 0.985)
    assert shipped == "int8"
    assert lost == {
        "fp16": "it takes 1.20 times as long as fp32",
        "fp32": "it takes 2.00 times as long as int8",
    }


def test_one_that_loses_accuracy_is_not():
    found = {"fp32": candidate(0.5), "int8": candidate(0.25, accuracy=0.97)}
    shipped, lost = decided(found, "fp32", 0.985)
    assert shipped == "fp32"
    assert lost == {"int8": "its accuracy on validation images is 97.00%, at least 98.50% is required"}


def test_what_is_lost_goes_by_the_name_of_what_was_measured():
    found = {"fp32": candidate(0.5), "int8": candidate(0.25, accuracy=0.97)}
    (reason,) = decided(found, "fp32", 0.985, "agreement")[1].values()
    assert reason.startswith("its agreement with the original on validation images is 97.00%")


@pytest.mark.parametrize(
    ("agreement", "kl", "shipped", "said"),
    [
        (1.0, 0.006, "int8", ""),
        (44 / 45, 0.006, "int8", ""),  # Wilson's interval reaches 99.6%
        (43 / 45, 0.006, "fp32", "its agreement with the original on validation images is 95.56%, at least 99.00%"),
        (1.0, 0.008, "fp32", "its divergence from the original on validation images is 0.008 nats, at most 0.007 nats"),
        (1.0, None, "fp32", "its divergence from the original on validation images is not finite"),
    ],
)
def test_of_few_images_agreement_and_divergence_decide(agreement, kl, shipped, said):
    found = {"fp32": candidate(0.5, 1.0), "int8": candidate(0.25, agreement, kl=kl)}
    one, lost = decided(found, "fp32", 0.99, "agreement", cost=0.7, largest_kl_nats=0.007)
    assert one == shipped
    assert lost.get("int8", "").startswith(said)


def test_nor_is_one_that_is_not_shown_to_be_faster():
    found = {"fp16": candidate(0.5), "int8": candidate(0.49)}
    shipped, lost = decided(found, "fp16", 0)
    assert shipped == "fp16"
    assert lost["int8"] == "it is not measurably faster (0.98 times as long as fp16, within the noise)"
    slower = decided({"fp16": candidate(0.5), "int8": candidate(0.6)}, "fp16", 0)[1]
    assert slower["int8"] == "it takes 1.20 times as long as fp16"


def test_of_two_that_are_faster_the_slower_says_why():
    found = {"fp16": candidate(0.5), "fp32": candidate(0.4), "int8": candidate(0.2)}
    assert decided(found, "fp16", 0)[1] == {
        "fp32": "it takes 2.00 times as long as int8",
        "fp16": "it takes 2.50 times as long as int8",
    }


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "source.onnx"
    file.write_bytes(network("concat").SerializeToString())
    return file


def seen(count=24):
    evaluated = images(count, seed=3)
    labels = run(network("concat"), evaluated).argmax(axis=1)
    return Int8Images(images(16), evaluated, labels, np.arange(count // 2))


def write(
    source, path, floor, *, target="x86-cpu", sets=("avx2", "avx512_vnni"), retrain=None, score=accuracy_of, **changes
):
    recipe, given = load_int8_recipe("standard").model_copy(update=changes), seen()

    def keeps(logits):
        return score(logits, given.labels) >= floor

    return write_int8(source, path, Int8Job(load_target(target), recipe, given, keeps, sets, retrain), Silent())


def test_layers_keep_their_floating_point_as_far_as_accuracy_needs_it(source, tmp_path):
    whole = write(source, tmp_path / "a.onnx", floor=0.0)
    assert whole.kept == ()
    assert (whole.form, whole.seven_bit_weights) == ("x86", False)
    assert {one.layer for one in whole.sensitivity} == {"stem", "left", "right", "last", "fc"}
    fixed = write(source, tmp_path / "b.onnx", floor=0.0, keep=["stem", "gone"])
    assert fixed.kept == ("stem",)
    assert any("does not have: gone" in remark for remark in fixed.remarks)
    assert write(source, tmp_path / "c.onnx", floor=1.01).kept is None
    assert not (tmp_path / "c.onnx").exists()


def test_the_worst_layers_are_kept_first(source, tmp_path, monkeypatch):
    """Accuracy counts as lost until two layers are kept in floating point."""
    asked = []

    def accuracy(logits, labels):
        return float(len(asked[-1]) >= 2)

    from catro_deploy.stages import integers

    def quantised(*arguments, keep=(), only=(), **options):
        asked.append(list(keep))
        return original(*arguments, keep=keep, only=only, **options)

    original = integers.quantised
    monkeypatch.setattr(integers, "quantised", quantised)
    found = write(source, tmp_path / "a.onnx", floor=1.0, score=accuracy)
    assert found.kept == tuple(one.layer for one in found.sensitivity[:2])


def history():
    return History(
        epochs=(), validation_accuracy=None, baseline_validation_accuracy=None, seconds=0, device="cpu", images=2
    )


def test_a_network_that_loses_too_much_is_trained_for_integers(source, tmp_path, monkeypatch):
    """Accuracy counts as lost with any layer in integers until the network has been trained."""

    trained = []

    def retrain(plain, whole):
        assert not [node for node in plain.graph.node if node.op_type == "QuantizeLinear"]
        assert [node for node in whole.graph.node if node.op_type == "QuantizeLinear"]
        trained.append(plain)
        return plain, history()

    options = {"floor": 1.0, "retrain": retrain, "score": lambda logits, labels: float(bool(trained))}
    found = write(source, tmp_path / "a.onnx", **options)
    assert found.kept == ()
    assert (found.qat.kept_before, found.qat.kept, found.qat.used) == (None, (), True)
    assert (tmp_path / "a.onnx").is_file()
    write(source, tmp_path / "a.onnx", **options)
    assert len(trained) == 1  # the second time, nothing is lost


def test_training_that_does_not_help_is_not_used(source, tmp_path, monkeypatch):

    never = {"retrain": lambda plain, whole: (plain, history()), "score": lambda logits, labels: 0.0}
    found = write(source, tmp_path / "a.onnx", floor=1.0, **never)
    assert found.kept is None
    assert found.qat.used is False


def test_a_network_that_cannot_be_trained_for_integers_goes_without(source, tmp_path):
    def refuse(plain, whole):
        raise ModelError("Mystery cannot be trained.", "Leave it out.")

    found = write(source, tmp_path / "a.onnx", floor=1.01, retrain=refuse)
    assert "Mystery cannot be trained." in found.remarks
    assert found.qat is None


def test_a_processor_without_vnni_is_reported(source, tmp_path):
    found = write(source, tmp_path / "a.onnx", floor=0.0, sets=("avx2",))
    assert found.seven_bit_weights
    assert "no VNNI" in found.remarks[0]


@pytest.mark.parametrize(("sets", "seven"), [(("avx2", "avx512_vnni"), False), (("avx2",), True)])
def test_openvino_gets_its_own_form(source, tmp_path, sets, seven):
    found = write(source, tmp_path / "a.onnx", floor=0.0, target="x86-cpu-openvino", sets=sets)
    assert (found.form, found.seven_bit_weights) == ("openvino", seven)
    assert {name: found.operators[f"{name}_I8"] for name in ("Convolution", "FullyConnected", "Reduce")} == {
        "Convolution": 4,
        "FullyConnected": 1,
        "Reduce": 1,
    }
    assert found.integer_nodes >= 6
    with open_runner("openvino", tmp_path / "a.onnx", 1) as runner:
        logits = np.concatenate([runner.infer(image[None]) for image in images(4)])
    expected = run(network("concat"), images(4))
    assert np.abs(logits - expected).max() < 0.2 * np.abs(expected).max()


def test_on_a_jetson_the_rest_is_in_half_precision(source, tmp_path):
    found = write(source, tmp_path / "a.onnx", floor=0.0, target="jetson-orin")
    assert found.form == "tensorrt"
    proto = onnx.load(tmp_path / "a.onnx")
    types = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    scales = {types[node.input[1]] for node in proto.graph.node if node.op_type == "QuantizeLinear"}
    assert scales == {onnx.TensorProto.FLOAT16}
    with open_runner("onnxruntime", tmp_path / "a.onnx", 1) as runner:
        logits = np.concatenate([runner.infer(image[None]) for image in images(4)])
    expected = run(network("concat"), images(4))
    assert np.abs(logits - expected).max() < 0.2 * np.abs(expected).max()
    described = {prop.key: prop.value for prop in proto.metadata_props}
    assert described["network"] == "x"


def test_values_that_are_not_finite_end_it_and_nothing_is_written(source, tmp_path):
    bad = seen()
    bad.calibration[0] = np.nan
    recipe = load_int8_recipe("standard")
    with pytest.raises(NumericsError, match=r"\bimage\b"):
        write_int8(source, tmp_path / "a.onnx", Int8Job(load_target("x86-cpu"), recipe, bad, 0.0, ()), Silent())
    assert not (tmp_path / "a.onnx").exists()


def test_the_command_decides_and_all_that_follows_goes_by_it(tiny_run):
    done = command("quantize", "--run", "run")
    assert done.exit_code == 0, done.stderr
    found = load(Quantize, tiny_run)
    assert found.asked == "auto"
    assert set(found.candidates) == {"fp32", "fp16", "int8"}
    assert found.shipped in found.candidates
    assert set(found.lost) == {"fp32", "fp16", "int8"} - {found.shipped}
    assert found.metric == "agreement"  # 30 images cannot show half a point of accuracy
    for one in found.candidates.values():
        assert 0 <= one.agreement <= 1
        assert one.mean_kl_nats >= 0
    assert command("quantize", "--run", "run").stderr.count("unchanged, skipped") == 2  # ship too
    for stage in ("verify", "bench", "report"):
        done = command(stage, "--run", "run")
        assert done.exit_code == exit_code_of(tiny_run.path, stage), done.stderr
    verified, measured = load(Verify, tiny_run), load(Bench, tiny_run)
    assert verified.precision == Precisions("fp32", found.shipped)
    served = "pruned.onnx" if found.shipped == "fp32" else f"pruned.{found.shipped}.onnx"
    assert measured.environment["models"]["pruned"]["file"] == served
    for report in ("md", "html"):
        text = tiny_run.report(report).read_text()
        assert "Sensitivity to quantisation" in text
        assert f'with_name("{served}")' in unescape(text)


def test_every_precision_takes_raw_pixels(tiny_run):
    asked = ("-o", "export.input=uint8", "-o", "export.output=softmax", "-o", "export.top_k=1")
    assert command("export", "--run", "run", *asked).exit_code == 0
    done = command("quantize", "--run", "run", "--max-drop", "100")
    assert done.exit_code == 0, done.stderr
    found = load(Quantize, tiny_run)
    assert set(found.candidates) == {"fp32", "fp16", "int8"}
    for precision, one in found.candidates.items():
        assert one.agreement == pytest.approx(found.candidates["fp32"].agreement, abs=0.1)
        with open_runner("onnxruntime", tiny_run.onnx("pruned", precision), 1) as runner:
            assert runner.input_type == np.uint8
            assert dict(runner.metadata)["output"] == "softmax"
    for stage in ("verify", "bench", "report"):
        done = command(stage, "--run", "run")
        assert done.exit_code == exit_code_of(tiny_run.path, stage), done.stderr
    assert load(Verify, tiny_run).passed
    words = "uint8 NCHW pixels, normalised inside the network; softmax and top 1"
    assert load(Bench, tiny_run).environment["interface"] == words
    for report in ("md", "html"):
        assert words in tiny_run.report(report).read_text()


def test_the_same_calibration_gives_the_same_network_to_the_bit(tiny_run, tmp_path):
    first = command("quantize", "--run", "run", "--precision", "int8", "--max-drop", "100")
    assert first.exit_code == exit_code_of(tiny_run.path, "quantize"), first.stderr
    before = file_hash(tiny_run.onnx("pruned", "int8"))
    shutil.copy(tiny_run.calibration, tmp_path / "mine.toml")
    options = ("--precision", "int8", "--max-drop", "100", "--recipe", str(tmp_path / "mine.toml"))
    second = command("quantize", "--run", "run", *options)
    assert second.exit_code == exit_code_of(tiny_run.path, "quantize"), second.stderr
    assert file_hash(tiny_run.onnx("pruned", "int8")) == before
    text = (tmp_path / "mine.toml").read_text()
    (tmp_path / "mine.toml").write_text(re.sub('images_sha256 = ".{12}', 'images_sha256 = "000000000000', text))
    other = command("quantize", "--run", "run", *options)
    assert other.exit_code == 2
    assert "not the images that the recipe was made with" in other.stderr


def test_what_was_asked_for_by_name_and_loses_ends_with_code_3(tiny_run):
    """On a CPU that casts to float32 to compute, half precision makes every network of this size slower."""
    done = command("quantize", "--run", "run", "--precision", "fp16")
    found = load(Quantize, tiny_run)
    if found.shipped == "fp32":  # always, except on a processor that is fast in half precision
        assert done.exit_code == 3
        assert "fp16 is not shipped: it takes" in done.stderr
        assert command("verify", "--run", "run").exit_code == 0
    assert set(found.candidates) == {"fp32", "fp16"}


def test_a_class_without_images_is_reported_before_anything_is_lost(tiny_run, tiny):
    shutil.rmtree(tiny / "data" / "train" / "even")
    before = {path: path.read_bytes() for path in tiny_run.path.glob("*.onnx")}
    done = command("quantize", "--run", "run", "--data-root", str(tiny / "data"))
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_recipe_that_is_none_is_refused(tiny_run, tmp_path):
    (tmp_path / "bad.toml").write_text("samples_per_class = 0\n")
    done = command("quantize", "--run", "run", "--recipe", str(tmp_path / "bad.toml"))
    assert done.exit_code == 2
    assert "is not valid" in done.stderr
    assert "bad.toml" not in tiny_run.settings.read_text()
    assert "There is no quantization recipe" in command("quantize", "--run", "run", "--recipe", "standart").stderr


def test_integers_that_clip_too_much_are_trained_for(tiny_run, tmp_path):
    recipe = (resources.find("calibration/int8", "standard")).read_text()
    recipe = recipe.replace('"mse"', '"percentile"').replace("99.99", "51.0")
    (tmp_path / "coarse.toml").write_text(recipe)
    asked = ("quantize", "--run", "run", "--precision", "int8", "--max-drop", "0", "--qat-epochs", "2")
    done = command(*asked, "--recipe", str(tmp_path / "coarse.toml"))
    assert done.exit_code == exit_code_of(tiny_run.path, "quantize"), done.stderr
    found = load(Quantize, tiny_run).integers.qat
    assert len(found.history.epochs) == 2
    assert not tiny_run.qat_state.exists()
