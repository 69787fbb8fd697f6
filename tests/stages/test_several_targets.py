"""One network for two targets, both measured: this machine, and the same as another device over a real sshd."""

import os
import sys

import pytest

from catro_deploy.progress import Silent
from catro_deploy.records import Bench
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import load
from catro_deploy.settings import Settings
from catro_deploy.stages.bench import bench
from catro_deploy.stages.export import export
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.prune import prune
from catro_deploy.stages.report import report
from catro_deploy.stages.ship import ship
from catro_deploy.stages.verify import verify
from catro_deploy.transports.registry import Device, add_device
from tests.tiny import SIZE
from tests.training.conftest import one_thread  # noqa: F401 - this network is small
from tests.transports.sshd import MISSING, serving

pytestmark = [pytest.mark.usefixtures("short_trials"), pytest.mark.slow]

FAR = "x86-cpu@far"


@pytest.fixture
def far(tmp_path, monkeypatch):
    """This machine as a remote device."""
    if MISSING:
        pytest.skip(MISSING)
    folder = tmp_path / "sshd"
    folder.mkdir()
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))
    with serving(folder):
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        device = Device(name="far", ssh="far", target="x86-cpu", python=sys.executable, folder=str(tmp_path / "far"))
        add_device(device)
        yield


def settings_of(folder, **pruning):
    return Settings.model_validate(
        {
            "model": {"name": "tests.tiny:blocks", "checkpoint": folder / "blocks.safetensors"},
            "data": {"name": "tests.tiny:dataset", "size": SIZE},
            "prune": {"samples_per_class": 16, "compute": "cpu", "reconstruct": False, **pruning},
            "finetune": {"epochs": 0},
            "verify": {"max_drop": 100.0},
            "bench": {"protocol": str(folder / "trial.toml")},
            "profile": {"protocol": str(folder / "few.toml")},
        }
    )


def test_its_budget_is_met_on_each(far, folder, tmp_path):
    settings = settings_of(folder, target=["x86-cpu", FAR], budget="0.7x", max_size="0.9x")
    run = RunFolder(tmp_path / "run")
    plan = prune(settings, run, Silent())
    assert plan == load_plan(run)
    assert set(plan.latency_on) == {FAR}
    timed = {one.target: one for one in plan.budgets if one.use == "latency"}
    assert set(timed) == {"x86-cpu", FAR}
    for one in plan.budgets:  # every budget was measured and is met
        assert one.measured is not None
        assert one.share is not None
        assert one.share <= 1
    assert sum(one.binding for one in plan.budgets) == 1
    finetune(settings, run, Silent())
    export(settings, run, Silent())
    verified = verify(settings, run, Silent())
    assert set(verified.also) == {FAR}
    assert verified.also[FAR].pruned == verified.pruned  # the same file and runtime
    measured = bench(settings, run, Silent())
    assert load(Bench, run) == measured
    assert measured.also[FAR].environment["reached"].startswith("far, by ssh")
    assert measured.also[FAR].speedup.median > 1
    shipped = ship(settings, run, Silent())
    assert shipped.also[FAR].sha256 == shipped.sha256
    joined = report(settings, run, Silent())
    assert [one.name for one in joined.devices] == ["x86-cpu", FAR]
    assert FAR in run.report("md").read_text()


def test_a_further_target_of_openvino_gets_what_it_reads(folder, tmp_path):
    pytest.importorskip("openvino")
    second = "x86-cpu-openvino"
    settings = settings_of(folder, target=["x86-cpu", second], budget="0.9x")
    run = RunFolder(tmp_path / "run")
    assert set(prune(settings, run, Silent()).latency_on) == {second}
    finetune(settings, run, Silent())
    exported = export(settings, run, Silent())
    assert {path.name for path in exported.ir} == {"original.xml", "original.bin", "pruned.xml", "pruned.bin"}
    verified, measured = verify(settings, run, Silent()), bench(settings, run, Silent())
    assert (set(verified.also), set(measured.also)) == ({second}, {second})
    assert "openvino" in measured.also[second].environment["runtime"]
    shipped = ship(settings, run, Silent())
    assert shipped.also[second].runtime == "openvino"
    assert {"pruned.onnx", "pruned.xml", "pruned.bin"} <= {path.name for path in run.shipped.parent.iterdir()}
