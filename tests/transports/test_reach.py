from importlib import metadata

import pytest

from catro_deploy import resources
from catro_deploy.errors import TargetError
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import profilable, reachable, require_latency, require_reachable
from tests.tiny import command


def changed(name, **fields):
    return load_target(name).model_copy(update=fields)


def test_of_what_is_shipped_only_the_cpu_can_be_measured():
    found = [name for name in resources.names("targets") if reachable(load_target(name))]
    assert found == ["x86-cpu", "x86-cpu-openvino"]


@pytest.mark.parametrize(
    "fields", [{"transport": "ssh"}, {"runtime": "pytorch"}, {"kind": "gpu"}], ids=lambda fields: next(iter(fields))
)
def test_everything_must_be_right(fields):
    assert not reachable(changed("x86-cpu", **fields))


def test_a_target_that_cannot_be_measured_is_explained():
    require_reachable(load_target("x86-cpu"), "", "bench")
    with pytest.raises(TargetError) as caught:
        require_reachable(load_target("jetson-orin"), "", "bench")
    assert caught.value.exit_code == 2
    for part in ("bench cannot run on jetson-orin", "another machine (bundle)", "no device is named"):
        assert part in caught.value.problem
    assert "device add NAME --ssh USER@HOST --target jetson-orin" in caught.value.hint
    assert "catro-deploy bundle" in caught.value.hint
    with pytest.raises(TargetError, match=r"NVIDIA T4.*tensorrt"):
        require_reachable(load_target("x86-gpu-t4"), "", "bench")
    with pytest.raises(TargetError, match="pytorch"):
        require_reachable(changed("x86-gpu", runtime="pytorch"), "", "bench")


def test_a_target_of_estimates_is_reached_by_no_device():
    xavier = load_target("jetson-xavier-nx")
    assert not reachable(xavier, "far")
    require_latency(xavier)
    with pytest.raises(TargetError, match="targets show jetson-xavier-nx") as caught:
        require_reachable(xavier, "far", "bench")
    assert "device add" not in caught.value.hint
    assert "opset 17" in xavier.notes


def test_onnx_runtime_on_a_gpu_needs_its_own_build_here():
    cuda = changed("x86-gpu", runtime="onnxruntime-cuda")
    assert reachable(cuda, "far")
    assert not reachable(changed("x86-cpu", runtime="onnxruntime-cuda"), "far")
    with pytest.raises(TargetError, match="onnxruntime-gpu"):
        require_reachable(cuda, "", "bench")
    assert not profilable(cuda)


@pytest.mark.parametrize(("name", "device"), [("x86-igpu-openvino", "GPU"), ("x86-npu-openvino", "NPU")])
def test_intels_devices_must_be_found_here(name, device):
    target = load_target(name)
    with pytest.raises(TargetError, match=rf"\bno {device}\b"):
        require_reachable(target, "", "bench")
    require_reachable(target, "far", "bench")
    assert not profilable(target)
    with pytest.raises(TargetError, match=name) as caught:
        require_latency(target, "far")
    assert "50%flops" in caught.value.hint


def test_openvino_must_be_installed_here(monkeypatch):
    target = load_target("x86-cpu-openvino")
    assert profilable(target)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(TargetError, match=r"\bno openvino\b") as caught:
        require_reachable(target, "", "bench")
    assert "pip install openvino" in caught.value.hint
    assert reachable(target, "far")


def missing(name):
    raise metadata.PackageNotFoundError(name)


def test_a_device_is_what_makes_another_machine_reachable():
    box = changed("x86-cpu", transport="ssh")
    assert reachable(box, "far")
    assert reachable(changed("x86-cpu"), "far")
    assert reachable(load_target("jetson-orin"), "far")
    assert not reachable(changed("jetson-orin", runtime="onnxruntime"), "far")
    require_latency(box, "far")
    with pytest.raises(TargetError, match="x86-cpu"):
        require_latency(box)
    with pytest.raises(TargetError, match=r"bench.*x86-cpu") as caught:
        require_reachable(box, "", "bench")
    assert "catro-deploy device add NAME --ssh USER@HOST --target x86-cpu" in caught.value.hint


@pytest.mark.slow
def test_a_network_is_pruned_and_exported_for_a_device_that_is_elsewhere_but_not_run_there(tiny):
    for stage in ("prune", "finetune", "export"):
        done = command(stage, *(("--target", "jetson-orin") if stage == "prune" else ()))
        assert done.exit_code == 0, done.stderr
    (run,) = (tiny / "runs").glob("jetson-orin-*")
    for stage in ("verify", "bench"):
        refused = command(stage)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"{stage} cannot run on jetson-orin" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not (run / f"{stage}.json").exists()
    for name in ("original", "pruned"):
        full, half = (run / f"{name}{kind}.onnx" for kind in ("", ".fp16"))
        assert half.stat().st_size < full.stat().st_size
    shown = command("export")
    assert "pruned.fp16.onnx" in shown.stdout
    assert "export: unchanged, skipped" in shown.stderr
