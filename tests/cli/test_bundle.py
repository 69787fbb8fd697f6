"""A device that cannot be reached: a bundle is copied to it by hand, and its results are copied back."""

import base64
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from catro_deploy.agent.jobs import BundleResults
from catro_deploy.agent.wire import to_json
from catro_deploy.resources import folder
from tests.tiny import command, exit_code_of

pytestmark = pytest.mark.slow

BOX = (folder("targets") / "x86-cpu.toml").read_text().replace("x86 CPU, ONNX Runtime", "The box in the press")


@pytest.fixture(scope="module")
def template(tiny_template, tmp_path_factory) -> Path:
    """A working folder with a run for an unreachable device, completed as far as possible without it."""
    work = tmp_path_factory.mktemp("bundle") / "work"
    shutil.copytree(tiny_template, work)
    (work / "box.toml").write_text(BOX.replace("batch = 1", 'batch = 1\ntransport = "bundle"'))
    done = command("run", "--target", "./box.toml", "--budget", "50%flops", cwd=work)
    assert done.exit_code == 0, done.stderr
    assert "verify and bench: left out, box cannot be reached from here" in done.stderr
    return work


@pytest.fixture
def run(template, tmp_path, monkeypatch) -> Path:
    """A copy of that run; its working folder is the current directory."""
    shutil.copytree(template, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    (run,) = Path("runs").glob("box-*")
    assert not (run / "bench.json").exists()
    return run.absolute()


def on_the_device(run: Path, place: Path, *, isolated: bool = True) -> subprocess.CompletedProcess[str]:
    """Unpack the bundle and follow its README; ``isolated`` keeps PYTHONPATH from making this package importable."""
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
    assert "Copy this file back to the host: " in done.stdout
    result = tmp_path / "catro-bundle" / "result.json"
    taken = command("import", str(result))
    assert taken.exit_code == exit_code_of(run, "verify", "bench"), taken.stderr
    bench, verify = (json.loads((run / f"{name}.json").read_text()) for name in ("bench", "verify"))
    assert bench["environment"]["reached"] == "another device, by a bundle"
    assert bench["original"]["n"] > 0
    assert verify["original"]["largest_logit_difference"] < 1e-4
    page = (run / "report.md").read_text()
    assert "Measured on: another device, by a bundle" in page
    assert "out of reach" not in page
    again = command("report")
    assert "report: unchanged, skipped" in again.stderr

    before = result.read_bytes()
    assert "Classifying" not in on_the_device(run, tmp_path).stdout  # everything has been done already
    assert result.read_bytes() == before


def test_after_results_were_carried_back_a_precision_is_still_decided_here(run, tmp_path):
    here = tmp_path / "here"
    assert command("run", "--target", "x86-cpu", "--budget", "50%flops", "--run", str(here)).exit_code == 0
    assert command("bundle", "--run", str(here)).exit_code == 0
    assert on_the_device(here, tmp_path).returncode == 0
    assert command("import", str(tmp_path / "catro-bundle" / "result.json"), "--run", str(here)).exit_code == 0
    decided = command("quantize", "--precision", "int8", "--run", str(here))
    assert decided.exit_code == exit_code_of(here, "quantize"), decided.stderr
    assert command("bundle", "--run", str(here)).exit_code == 0


def test_results_of_another_run_are_refused(run, tmp_path):
    assert command("bundle").exit_code == 0
    (tmp_path / "result.json").write_text(json.dumps(to_json(BundleResults())))
    done = command("import", str(tmp_path / "result.json"))
    assert done.exit_code == 2
    assert "has no result for this run's verify" in done.stderr
    assert "catro-deploy bundle" in done.stderr
    assert not (run / "bench.json").exists()
    assert not (run / "device-results.json").exists()


def test_incomplete_results_say_that_the_agent_has_not_finished(run, tmp_path):
    assert command("bundle").exit_code == 0
    assert on_the_device(run, tmp_path).returncode == 0
    result = tmp_path / "catro-bundle" / "result.json"
    lines = result.read_text().splitlines(keepends=True)
    ends = [place for place, line in enumerate(lines) if json.loads(line).get("event", {}).get("event") == "result"]
    for kept in (1, ends[0], ends[0] + 1):  # no job, a part of the first one, and the first one only
        result.write_text("".join(lines[:kept]))
        done = command("import", str(result))
        assert done.exit_code == 2
        assert "the agent has not finished" in done.stderr
        assert "python3 agent.pyz do" in done.stderr
        assert not (run / "device-results.json").exists()
    assert agent(tmp_path / "catro-bundle").returncode == 0  # it continues with the second job
    taken = command("import", str(result))
    assert taken.exit_code == exit_code_of(run, "verify", "bench"), taken.stderr


def negative_sample(result):
    result["original"]["samples_us"][3] *= -1


def half_a_block(result):
    result["pruned"]["samples_us"].pop()


def other_mode(result):
    result["mode"]["batch"] = 4


def one_row(event):
    event["base64"] = base64.b64encode(base64.b64decode(event["base64"])[:12]).decode()


def no_base64(event):
    event["base64"] = "!"


def edited(path: Path, kind: str, damage) -> None:
    """Apply ``damage`` to the first logits event, or to the result of the job ``kind``, in a results file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    events = [line["event"] for line in lines[1:]]
    if kind == "logits":
        damage(next(event for event in events if event["event"] == kind))
    else:
        results = [event["result"] for event in events if event["event"] == "result"]
        damage(next(result for result in results if result["result"] == kind))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_results_are_recounted_and_what_cannot_be_one_is_refused(run, tmp_path):
    assert command("bundle").exit_code == 0
    assert on_the_device(run, tmp_path).returncode == 0
    result = tmp_path / "catro-bundle" / "result.json"
    whole = result.read_bytes()
    (run / "device-results.json").write_text("earlier")
    for kind, damage, says in (
        ("bench", negative_sample, "us is impossible."),
        ("bench", half_a_block, "The original was measured in"),
        ("bench", other_mode, "not the requested ones"),
        ("logits", one_row, "rows of 3 logits, but 24 images were sent"),
        ("logits", no_base64, "is not base64"),
    ):
        edited(result, kind, damage)
        done = command("import", str(result))
        assert done.exit_code == 2, done.stderr
        assert says in done.stderr
        assert (run / "device-results.json").read_text() == "earlier"
        result.write_bytes(whole)

    def boast(found):
        found["speedup"] = {"median": 9.0, "ci95": [8.0, 10.0]}
        found["pruned"]["p50_us"] = 0.001

    def drift(found):
        found["warnings"] = ["The medians moved. Measure again: catro-deploy bench --force"]

    edited(result, "bench", boast)
    edited(result, "bench", drift)
    taken = command("import", str(result))
    assert taken.exit_code == exit_code_of(run, "verify", "bench"), taken.stderr
    bench = json.loads((run / "bench.json").read_text())
    medians = [statistics.median_low(bench[name]["samples_us"]) for name in ("original", "pruned")]
    assert bench["speedup"]["median"] == pytest.approx(medians[0] / medians[1])
    assert bench["pruned"]["p50_us"] == medians[1]
    assert "The medians moved. Measure again: catro-deploy bundle" in bench["warnings"]
    low, high = bench["speedup"]["ci95"]
    assert low <= bench["speedup"]["median"] <= high


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"'])
def test_damaged_results_are_refused_and_earlier_ones_stay(run, tmp_path, content):
    (run / "device-results.json").write_text("earlier")
    (tmp_path / "result.json").write_text(content)
    done = command("import", str(tmp_path / "result.json"))
    assert done.exit_code == 2
    assert f"{tmp_path / 'result.json'} cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
    assert (run / "device-results.json").read_text() == "earlier"


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
    assert "files/pruned.onnx cannot be read: No such file or directory." in done.stdout
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
    assert not list(run.glob("*.engine"))  # they stay on the device
    assert "Strongly typed engines" in (run / "report.md").read_text()
