"""(1) An aarch64 Debian, emulated, with ONNX Runtime: a Raspberry Pi, or the CPU of a Jetson."""

import json

import pytest

from tests.rehearsal.sides import aarch64


def read(run, name):
    return json.loads((run / f"{name}.json").read_text())


def test_a_run_on_an_arm_cpu(rehearse):
    device = rehearse("arm-cpu", aarch64)
    device.add()
    run = device.run_with_a_cut()
    verify, bench = read(run, "verify"), read(run, "bench")
    for name in ("original", "pruned"):
        assert verify[name]["agreement"] == 1.0
        assert verify[name]["largest_logit_difference"] < 1e-6
    assert bench["environment"]["reached"].startswith("van, by ssh")
