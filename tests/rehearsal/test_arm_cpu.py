"""(1) An aarch64 Debian, emulated, with ONNX Runtime: a Raspberry Pi, or the CPU of a Jetson."""

import pytest

from tests.rehearsal.flow import read, same_as_here
from tests.rehearsal.sides import aarch64
from tests.tiny import command, exit_code_of


def test_a_run_resumes_when_the_connection_is_cut(rehearse):
    device = rehearse("arm-cpu", aarch64)
    device.add()
    run = device.run_with_a_cut()
    assert same_as_here(read(run, "verify"))
    environment = read(run, "bench")["environment"]
    assert environment["reached"] == "van, by ssh to far"
    assert environment["runtime"] == "onnxruntime 1.32.0"
    assert "asimd" in environment["instruction_sets"]


@pytest.mark.full
def test_what_the_device_is_and_can_do(rehearse):
    device = rehearse("arm-cpu", aarch64)
    device.add()
    checked = device.facts()
    assert checked["runtime"] == "onnxruntime 1.32.0"
    assert checked["os"].startswith("Debian GNU/Linux 12")
    assert "asimd" in checked["instruction_sets"]
    found = device.doctor()
    assert {found[name]["state"] for name in ("ssh", "python", "numpy", "onnxruntime")} == {"works"}


@pytest.mark.full
def test_a_profile_and_every_way_to_bench(rehearse):
    device = rehearse("arm-cpu", aarch64)
    device.add()
    profiled = command("profile", "--device", "van")
    assert profiled.exit_code == 0, profiled.stderr
    run = device.run("--dynamic-batch", "-o", "bench.batches=[4]")
    assert [times["mode"]["batch"] for times in read(run, "bench")["further"]] == [4]
    again = command("bench", "--run", "run", "--threads", "2")
    assert again.exit_code == exit_code_of(run, "bench"), again.stderr
    assert read(run, "bench")["environment"]["threads"] == 2


@pytest.mark.full
def test_a_bundle_there_and_back(rehearse):
    run = rehearse("arm-cpu", aarch64).carried()
    assert same_as_here(read(run, "verify"))
    assert read(run, "bench")["environment"]["reached"] == "another device, by a bundle"
