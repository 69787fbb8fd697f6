"""(2) The aarch64 Debian with NVIDIA's TensorRT bindings, doubles of its libraries, and what else a Jetson has."""

from functools import partial

import pytest

from tests.rehearsal.flow import read, same_as_here
from tests.rehearsal.jetson import MODEL, plant
from tests.rehearsal.sides import aarch64_tensorrt
from tests.tiny import command, exit_code_of

ROOT, USER = 0, 1000


def jetson(folder, uid=USER, sensors=True):
    plant(folder / "planted", sensors=sensors)
    return aarch64_tensorrt(folder, uid=uid)


def test_engines_are_built_and_judged_though_the_connection_is_cut(rehearse):
    device = rehearse("jetson-orin", partial(jetson, sensors=False))
    device.add()
    run = device.run_with_a_cut()
    build, verify, bench = (read(run, name) for name in ("build", "verify", "bench"))
    assert build["pruned"]["place"]["tensorrt"] == "10.16.1.11"
    assert verify["pruned"]["agreement"] == 1.0
    assert len(bench["further"]) == 3
    assert bench["energy"] is None
    environment = bench["environment"]
    assert (environment["device"], environment["l4t"], environment["power_mode"]) == (MODEL, "36.4.7", "MODE_30W")


@pytest.mark.full
@pytest.mark.parametrize(("uid", "sms"), [(ROOT, 8), (USER, None)])
def test_what_the_device_is_and_can_do(rehearse, uid, sms):
    device = rehearse("jetson-orin", partial(jetson, uid=uid))
    device.add()
    checked = device.facts()
    assert checked["runtime"].startswith("tensorrt 10.16.1.11")
    assert checked["device"] == MODEL
    assert checked["gpu_sms"] == sms
    found = device.doctor()
    assert {found[name]["state"] for name in ("ssh", "python", "numpy", "tensorrt", "CUDA")} == {"works"}
    assert "power mode MODE_30W" in found["Jetson"]["detail"]


@pytest.mark.full
@pytest.mark.parametrize("uid", [ROOT, USER])
def test_every_way_to_build_and_bench(rehearse, uid):
    """There are eight modes, with two batch sizes."""
    device = rehearse("jetson-fp32", partial(jetson, uid=uid))
    device.add()
    run = device.run("--dynamic-batch", "-o", "bench.batches=[4]")
    assert same_as_here(read(run, "verify"))
    bench = read(run, "bench")
    assert len(bench["further"]) == 7
    assert bench["energy"]["rails"] == "VDD_GPU_SOC, VDD_CPU_CV"
    clock = bench["environment"]["clocks_mhz_during"]["GPU"]
    assert (clock["median"], clock["allowed"]) == (408.0, 612.0)
    built = command("build", "--run", "run", "--level", "5", "--rebuilds", "1")
    assert built.exit_code == 0, built.stderr
    assert len(read(run, "build")["pruned"]["rebuilds_us"]) == 1
    counted = command("bench", "--run", "run", "--transfers", "--cuda-graph")
    assert counted.exit_code == exit_code_of(run, "bench"), counted.stderr
    assert read(run, "bench")["mode"] == {"batch": 1, "transfers": True, "cuda_graph": True}


@pytest.mark.full
def test_a_bundle_there_and_back(rehearse):
    run = rehearse("jetson-orin", jetson).carried()
    assert read(run, "verify")["pruned"]["agreement"] == 1.0
    assert read(run, "bench")["environment"]["reached"] == "another device, by a bundle"
