"""Jobs and their results as callers see them: typed, whatever the transport."""

import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from catro_deploy.agent import locks
from catro_deploy.agent.carried import do
from catro_deploy.agent.events import Event, Progress
from catro_deploy.agent.jobs import BenchJob, DoctorJob, FactsJob
from catro_deploy.agent.results import BenchResult, DoctorResult, FactsResult
from catro_deploy.agent.wire import FORMAT
from catro_deploy.calibration import load_latency_protocol
from catro_deploy.errors import ModelError, RunFolderError
from catro_deploy.transports import run_job
from catro_deploy.transports.bundle import Errand, write_bundle
from catro_deploy.transports.execution import Use, bench_job
from catro_deploy.transports.registry import HERE
from tests.agent.test_agent import job_for, with_pruned
from tests.agent.test_process import children

WAYS = ({"transfers": False, "cuda_graph": True}, {"transfers": True, "cuda_graph": True})


def test_a_job_here_returns_its_result_and_reports_its_events(tmp_path):
    events: list[Event] = []
    result = run_job(HERE, job_for(tmp_path, original={"layers": 3}, pruned={}), tmp_path, (), on_event=events.append)
    assert isinstance(result, BenchResult)
    assert result.original.n >= 100
    assert {type(event) for event in events} == {Progress}
    assert events == sorted(events, key=lambda event: event.seconds)
    assert isinstance(run_job(HERE, FactsJob("onnxruntime"), tmp_path, ()), FactsResult)
    assert isinstance(run_job(HERE, DoctorJob("onnxruntime"), tmp_path, ()), DoctorResult)


@pytest.mark.parametrize("stopped", [False, True])
def test_what_is_timed_here_waits_for_another_process_that_times(tmp_path, monkeypatch, stopped):
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    said, job = [], job_for(tmp_path, original={}, pruned={})
    sleeper = subprocess.Popen(["sleep", "60"])
    if stopped:
        sleeper.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    other = locks.locked(tmp_path / "cache" / "device.lock", f"process {sleeper.pid}")
    assert other.__enter__()

    def note(text):
        said.append(text)
        other.__exit__(None, None, None)

    try:
        assert isinstance(run_job(HERE, job, tmp_path, (), note=note), BenchResult)
    finally:
        sleeper.kill()
        sleeper.wait()
    hint = f", but is stopped; continue it (kill -CONT {sleeper.pid}) or end it" if stopped else ""
    assert said == [f"waiting: process {sleeper.pid} is measuring here{hint}"]


def test_the_agents_error_is_raised(tmp_path):
    job = with_pruned(job_for(tmp_path, original={}, pruned={}), metadata={"plan_sha256": "another"})
    with pytest.raises(ModelError, match=r"plan_sha256.*'another'"):
        run_job(HERE, job, tmp_path, ())


def test_an_error_of_the_caller_ends_the_process(tmp_path):
    def fail(event: Event) -> None:
        assert children() - before
        raise KeyError("caller")

    before = children()
    with pytest.raises(KeyError, match="caller"):
        run_job(HERE, job_for(tmp_path, original={}, pruned={}), tmp_path, (), on_event=fail)
    assert children() == before


def test_a_bench_is_of_the_mode_that_counts_unless_others_are_asked_for():
    use = Use("box", "tensorrt", "fp16", threads=2, batch=4, ways=WAYS)
    job = bench_job(use, load_latency_protocol("standard"), {})
    assert [(one.batch, one.transfers, one.cuda_graph) for one in job.modes] == [(4, False, True)]
    modes = bench_job(use, load_latency_protocol("standard"), {}, use.modes([1, 4])).modes
    assert [(one.batch, one.transfers) for one in modes] == [(1, False), (1, True), (4, False), (4, True)]
    assert (job.runtime, job.threads, job.complete) == ("tensorrt", 2, False)
    on_cpu = bench_job(Use("pc", "onnxruntime", "fp32", 1, 1), load_latency_protocol("standard"), {}).modes[0]
    assert (on_cpu.transfers, on_cpu.cuda_graph) == (None, None)


@pytest.fixture
def bundle(tmp_path, request) -> tuple[BenchJob, Path]:
    """A job, and the folder of the unpacked bundle that contains it."""
    job = job_for(tmp_path, original={"layers": 3}, pruned={}, runtime=getattr(request, "param", "onnxruntime"))
    errand = Errand("Measuring", job, FILES, 60)
    write_bundle(tmp_path / "bundle.tar", [errand], tmp_path, "The box")
    with tarfile.open(tmp_path / "bundle.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    return job, tmp_path / "catro-bundle"


FILES = ("original.onnx", "pruned.onnx")


def carried_back(job: BenchJob, there: Path) -> BenchResult:
    return run_job(str(there / "result.json"), job, there / "files", FILES)


@pytest.mark.parametrize("bundle", ["onnxruntime", "openvino"], indirect=True)
def test_a_bundle_there_and_back(bundle, capsys):
    job, there = bundle
    assert do(there) == 0
    assert job.runtime in (there / "README.txt").read_text()
    found = carried_back(job, there)
    assert found.original.n >= 100
    assert (found.facts.properties is None) == (job.runtime == "onnxruntime")
    before = (there / "result.json").read_bytes()
    assert do(there) == 0
    assert (there / "result.json").read_bytes() == before
    with pytest.raises(RunFolderError, match=r"result\.json.*\bbench\b"):
        carried_back(with_pruned(job, metadata={"another": "run"}), there)


def damaged(path: Path, damage) -> None:
    """Apply ``damage`` to the only result of a file of results, or the only job of a file of jobs."""
    *before, last = map(json.loads, path.read_text().splitlines())
    damage(last["event"]["result"] if "event" in last else next(iter(last["jobs"].values())))
    path.write_text("".join(json.dumps(line) + "\n" for line in (*before, last)))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda result: result["speedup"].pop("ci95"), "lacks speedup.ci95: a list; each item is a finite number; 2"),
        (lambda result: result["pruned"].update(n="many"), 'has pruned.n = "many". Expected an integer.'),
        (lambda result: result.update(format=FORMAT + 1), f"this version of catro-deploy reads format {FORMAT}"),
        (lambda result: result.update(result="other"), 'The result "other" is not one of: bench'),
    ],
)
def test_a_damaged_result_is_refused_by_file_and_field(bundle, damage, says):
    job, there = bundle
    do(there)
    damaged(there / "result.json", damage)
    with pytest.raises(RunFolderError) as caught:
        carried_back(job, there)
    assert str(there / "result.json") in caught.value.problem
    assert says in caught.value.problem


@pytest.mark.parametrize("content", ["", "{", "[]", '{"results": []}', "[" * 100_000])
def test_results_that_are_none(bundle, content):
    job, there = bundle
    (there / "result.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"result\.json.* read: "):
        carried_back(job, there)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"file": "results", "results": {}}, f"format null; this version of catro-deploy reads format {FORMAT}"),
        ({"file": "jobs", "format": FORMAT, "jobs": {}}, 'The file "jobs" is not one of: results.'),
    ],
)
def test_results_are_refused_by_file_and_key(bundle, content, says):
    job, there = bundle
    (there / "result.json").write_text(json.dumps(content))
    with pytest.raises(RunFolderError) as caught:
        carried_back(job, there)
    assert caught.value.problem.startswith(f"{there / 'result.json'} cannot be read: The file")
    assert says in caught.value.problem


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"job": "a"}, "The file lacks event: an object"),
        ({"job": 3, "event": {}}, "has job = 3. Expected a string."),
        ({"job": "a", "event": []}, "has event = []. Expected an object"),
        ({"job": "a", "event": {"event": "note", "text": "x"}}, "an event that is not a result"),
    ],
)
def test_lines_of_results_are_refused_by_file_and_key(bundle, line, says):
    job, there = bundle
    (there / "result.json").write_text(json.dumps({"file": "results", "format": FORMAT}) + "\n" + json.dumps(line))
    with pytest.raises(RunFolderError) as caught:
        carried_back(job, there)
    assert caught.value.problem.startswith(f"{there / 'result.json'} cannot be read: The file")
    assert says in caught.value.problem


def test_without_a_result_there_is_no_answer(bundle, capsys):
    """The device was switched off, or the copy was cut off between two lines."""
    job, there = bundle
    do(there)
    first, *_ = (there / "result.json").read_text().splitlines()
    (there / "result.json").write_text(first + "\n")
    with pytest.raises(RunFolderError, match=r"result\.json.*\bbench\b"):
        carried_back(job, there)


def test_a_damaged_job_in_a_bundle_is_refused_by_its_field(bundle, capsys):
    _, there = bundle
    damaged(there / "jobs.json", lambda carried: carried["job"]["protocol"].pop("seconds"))
    assert do(there) == 2
    assert "The job bench lacks protocol.seconds: a finite number." in capsys.readouterr().out
    assert not (there / "result.json").exists()


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [flipped, Path.unlink, pipe, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", ["files/pruned.onnx", "jobs.json"])
def test_a_damaged_bundle_is_not_run(bundle, name, damage, capsys):
    _, there = bundle
    damage(there / name)
    assert do(there) == 2
    said = capsys.readouterr().out
    assert Path(name).name in said or "The job bench" in said
    assert "Copy the bundle to the device again." in said or "Use the same version" in said
    assert not (there / "result.json").exists()


def test_a_job_changed_in_transit_is_not_run(bundle, capsys):
    _, there = bundle
    damaged(there / "jobs.json", lambda carried: carried["job"].update(threads=2))
    assert do(there) == 2
    assert "the job 'Measuring' was changed" in capsys.readouterr().out
