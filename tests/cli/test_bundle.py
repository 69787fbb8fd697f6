"""A device that cannot be reached: a bundle is carried there, and its results are carried back."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from catro_deploy.resources import folder
from tests.tiny import command, exit_code_of

pytestmark = pytest.mark.slow

BOX = (folder("targets") / "x86-cpu.toml").read_text().replace("x86 CPU, ONNX Runtime", "The box in the press")


@pytest.fixture(scope="module")
def template(tiny_template, tmp_path_factory) -> Path:
    """A working folder with a run for a box that is nowhere in reach, up to what can be done without it."""
    work = tmp_path_factory.mktemp("bundle") / "work"
    shutil.copytree(tiny_template, work)
    (work / "box.toml").write_text(BOX.replace("batch = 1", 'batch = 1\ntransport = "bundle"'))
    done = command("run", "--target", "./box.toml", "--budget", "50%flops", cwd=work)
    assert done.exit_code == 0, done.stderr
    assert "verify and bench: left out, box cannot be reached from here" in done.stderr
    return work


@pytest.fixture
def run(template, tmp_path, monkeypatch) -> Path:
    """A copy of that run; its working folder is the current one."""
    shutil.copytree(template, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    (run,) = Path("runs").glob("box-*")
    assert not (run / "bench.json").exists()
    return run.absolute()


def on_the_device(run: Path, place: Path, *, isolated: bool = True) -> subprocess.CompletedProcess[str]:
    """Unpack the bundle and do what its README says, in an environment that knows nothing of this package."""
    with tarfile.open(run / "bundle.tar") as tar:
        tar.extractall(place, filter="data")
    there = place / "catro-bundle"
    assert "\n    python3 agent.pyz do\n" in (there / "README.txt").read_text()
    return agent(there, isolated=isolated)


def agent(folder: Path, *, isolated: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(["-I"] if isolated else []), "agent.pyz", "do"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_there_and_back_again(run, tmp_path):
    packed = command("bundle")
    assert packed.exit_code == 0, packed.stderr
    assert "Packed: " in packed.stdout
    assert not (run / ".images.npy").exists()
    done = on_the_device(run, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Carry this file back: " in done.stdout
    result = tmp_path / "catro-bundle" / "result.json"
    taken = command("import", str(result))
    assert taken.exit_code == exit_code_of(run, "verify", "bench"), taken.stderr
    bench, verify = (json.loads((run / f"{name}.json").read_text()) for name in ("bench", "verify"))
    assert bench["environment"]["reached"] == "by hand"
    assert bench["original"]["n"] > 0
    assert verify["original"]["largest_logit_difference"] < 1e-4
    page = (run / "report.md").read_text()
    assert "by hand" in page
    assert "out of reach" not in page
    again = command("report")
    assert "report: unchanged, skipped" in again.stderr

    before = result.read_bytes()
    assert "Classifying" not in on_the_device(run, tmp_path).stdout  # all is done already
    assert result.read_bytes() == before


def test_results_of_another_run_are_refused(run, tmp_path):
    assert command("bundle").exit_code == 0
    (tmp_path / "result.json").write_text(json.dumps({"results": {64 * "0": {"speedup": 100}}}))
    done = command("import", str(tmp_path / "result.json"))
    assert done.exit_code == 2
    assert "has no answer to this run's verify" in done.stderr
    assert "catro-deploy bundle" in done.stderr
    assert not (run / "bench.json").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"'])
def test_damaged_results_are_refused(run, tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    done = command("import", str(tmp_path / "result.json"))
    assert done.exit_code == 2
    assert "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_there_are_no_results(run):
    done = command("import", "nowhere.json")
    assert done.exit_code == 2
    assert "There is no file nowhere.json" in done.stderr


def test_a_bundle_that_lost_a_file_says_so(run, tmp_path):
    assert command("bundle").exit_code == 0
    with tarfile.open(run / "bundle.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "catro-bundle" / "files" / "pruned.onnx").unlink()
    there = tmp_path / "catro-bundle"
    done = subprocess.run(
        [sys.executable, "-I", "agent.pyz", "do"], cwd=there, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "There is no model file" in done.stdout
    assert not (there / "result.json").exists()


@pytest.mark.usefixtures("tensorrt")
def test_a_jetson_builds_its_engines_itself(tiny, tmp_path):
    for stage in ("prune", "finetune", "export"):
        assert command(stage, *(("--target", "jetson-orin") if stage == "prune" else ())).exit_code == 0
    (run,) = (tiny / "runs").glob("jetson-orin-*")
    packed = command("bundle")
    assert packed.exit_code == 0, packed.stderr
    done = on_the_device(run, tmp_path, isolated=False)
    assert done.returncode == 0, done.stderr
    assert "Building TensorRT engines ..." in done.stdout
    there = tmp_path / "catro-bundle"
    assert "Python 3.10 or later with numpy, TensorRT 10.3" in (there / "README.txt").read_text()
    assert len(list((there / "engines").glob("*.engine"))) == 2
    taken = command("import", str(there / "result.json"))
    assert taken.exit_code == exit_code_of(run, "verify", "bench"), taken.stderr
    build, bench, verify = (json.loads((run / f"{name}.json").read_text()) for name in ("build", "bench", "verify"))
    assert build["pruned"]["place"]["gpu"] == "Double of a GPU"
    assert bench["environment"]["runtime"].startswith("tensorrt ")
    assert verify["pruned"]["agreement"] == 1.0
    assert not list(run.glob("*.engine"))  # they stay where they run
    assert "Strongly typed engines" in (run / "report.md").read_text()
