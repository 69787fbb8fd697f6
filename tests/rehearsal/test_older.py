"""(3) Python 3.10 and the libraries of JetPack 6; (4) Python 3.8 with the last libraries for it. On this processor."""

import pytest

from tests.rehearsal.flow import read, same_as_here
from tests.rehearsal.sides import older_python, x86_tensorrt
from tests.tiny import command, exit_code_of


def test_jetpack_6(rehearse):
    device = rehearse("jetson-fp32", x86_tensorrt)
    device.add()
    run = device.run_with_a_cut()
    assert read(run, "build")["pruned"]["place"]["tensorrt"] == "10.3.0"
    assert same_as_here(read(run, "verify"))
    assert len(read(run, "bench")["further"]) == 3


@pytest.mark.full
def test_jetpack_6_in_every_way(rehearse):
    device = rehearse("jetson-orin", x86_tensorrt)
    run = device.carried()
    assert read(run, "verify")["pruned"]["agreement"] == 1.0
    device.add()
    checked = device.facts()
    assert checked["runtime"].startswith("tensorrt 10.3.0")
    assert checked["python"].startswith("3.10.")
    found = device.doctor()
    assert found["numpy"]["detail"] == "1.21.5"
    assert {found[name]["state"] for name in ("ssh", "python", "numpy", "tensorrt", "CUDA")} == {"works"}
    run = device.run("--dynamic-batch", "-o", "bench.batches=[4]")
    assert len(read(run, "bench")["further"]) == 7
    built = command("build", "--run", "run", "--level", "5", "--rebuilds", "1")
    assert built.exit_code == 0, built.stderr
    counted = command("bench", "--run", "run", "--transfers", "--cuda-graph")
    assert counted.exit_code == exit_code_of(run, "bench"), counted.stderr


def test_python_3_8(rehearse):
    device = rehearse("x86-cpu", older_python)
    device.add()
    run = device.run_with_a_cut()
    assert same_as_here(read(run, "verify"))
    assert read(run, "bench")["environment"]["runtime"] == "onnxruntime 1.19.2"


@pytest.mark.full
def test_python_3_8_in_every_way(rehearse):
    device = rehearse("arm-cpu", older_python)
    run = device.carried()
    assert same_as_here(read(run, "verify"))
    device.add()
    assert device.facts()["python"].startswith("3.8.")
    found = device.doctor()
    assert (found["numpy"]["detail"], found["onnxruntime"]["detail"]) == ("1.24.4", "1.19.2")
    profiled = command("profile", "--device", "van")
    assert profiled.exit_code == 0, profiled.stderr
    run = device.run("--dynamic-batch", "-o", "bench.batches=[4]")
    assert [times["mode"]["batch"] for times in read(run, "bench")["further"]] == [4]
