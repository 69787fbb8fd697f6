"""The original in the other runtimes of this machine, with real timings."""

import pytest

from catro_deploy.progress import Silent
from catro_deploy.records import Runtimes, Speedup
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load
from catro_deploy.settings import Settings
from catro_deploy.stages import other_runtimes as module
from catro_deploy.stages.original import open_original
from catro_deploy.stages.other_runtimes import other_runtimes, relative_to_own
from tests.tiny import SIZE
from tests.training.helpers import Recorder


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def settings_of(folder):
    def make(**pruning):
        return Settings.model_validate(
            {
                "model": {"name": "tests.tiny:blocks", "checkpoint": folder / "blocks.safetensors"},
                "data": {"name": "tests.tiny:dataset", "size": SIZE},
                "prune": pruning,
                "bench": {"protocol": str(folder / "trial.toml")},
            }
        )

    return make


def test_it_is_timed_once_by_each_runtime_that_is_there(run, settings_of, monkeypatch):
    pytest.importorskip("openvino")
    settings = settings_of()
    original = open_original(settings)
    found = other_runtimes(settings, original, run, Silent())
    (folder,) = run.searched.iterdir()
    record = load(Runtimes, RunFolder(folder))
    assert [row.runtime.split()[0] for row in record.rows] == ["onnxruntime", "openvino"]
    assert found == {"x86-cpu-openvino": record.rows[1].speedup}
    assert record.rows[0].speedup == Speedup(1.0, (1.0, 1.0))
    assert {path.name for path in folder.iterdir()} == {"runtimes.json", ".lock"}
    monkeypatch.setattr(module, "_measured", None)
    assert other_runtimes(settings, original, run, Silent()) == found


@pytest.mark.parametrize("pruning", [{"device": "pi"}, {"also": ["x86-cpu-openvino"]}])
def test_there_is_none_on_another_machine_or_with_a_second_target(run, settings_of, pruning):
    progress = Recorder()
    assert other_runtimes(settings_of(**pruning), None, run, progress) == {}
    assert progress.notes == ["no other runtime is tried: none can run here what is pruned for x86-cpu"]
    assert not run.path.exists()


def test_shares_of_the_original_in_another_runtime_become_shares_of_it_in_the_first():
    found = relative_to_own(Speedup(2.0, (1.9, 2.1)), Speedup(1.5, (1.4, 1.6)))  # 2 x 1.5 times as fast
    assert (found.median, *found.ci95) == pytest.approx((3.0, 1.9 * 1.4, 2.1 * 1.6))
