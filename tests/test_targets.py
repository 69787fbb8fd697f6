import pytest

from catro_deploy import resources
from catro_deploy.errors import TargetError
from catro_deploy.targets import list_targets, load_target

VALID = resources.find("targets", "x86-cpu").read_text()


def test_x86_cpu():
    target = load_target("x86-cpu")
    assert (target.name, target.kind, target.runtime) == ("x86-cpu", "cpu", "onnxruntime")
    assert (target.precision, target.threads, target.batch) == ("fp32", 1, 1)


def test_all_that_are_listed_load_and_give_a_source_for_each_figure():
    for target in list_targets():
        assert set(target.sources) == {"precision", "threads", "batch"}
        assert load_target(target.name) == target


def test_an_unknown_target_gets_the_nearest():
    with pytest.raises(TargetError, match="Did you mean x86-cpu") as caught:
        load_target("x86_cpu")
    assert "x86-cpu" in caught.value.hint


def test_a_file_of_the_users_is_named_after_its_stem(tmp_path):
    file = tmp_path / "my-box.toml"
    file.write_text(VALID.replace("threads = 1", "threads = 4", 1))
    target = load_target(file)
    assert (target.name, target.threads) == ("my-box", 4)


@pytest.mark.parametrize(
    ("change", "explanation"),
    [
        (("threads = 1", "threads = 0"), "threads: Input should be greater than 0"),
        (("threads = 1", 'threads = "1"'), "threads: Input should be a valid integer"),
        (("threads = 1", "thread = 1"), "threads: Field required"),
        (("batch = 1", "batch = 1\nbatches = 1"), "batches: Extra inputs are not permitted"),
        (('runtime = "onnxruntime"', 'runtime = "tflite"'), "runtime: Input should be 'onnxruntime'"),
        (('batch = "A choice', 'bath = "A choice'), r"\[sources\] says nothing of batch"),
        (('batch = "A choice', 'clock = "x"\nbatch = "A choice'), r"\[sources\] speaks of clock"),
        (("threads = 1", "threads 1"), "cannot be read"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, change, explanation):
    file = tmp_path / "wrong.toml"
    assert change[0] in VALID
    file.write_text(VALID.replace(*change, 1))
    with pytest.raises(TargetError, match=explanation) as caught:
        load_target(file)
    assert str(file) in caught.value.problem
