import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import catro_deploy
from catro_deploy.agent.agent import FUNCTIONS, run
from catro_deploy.agent.events import Event, Progress
from catro_deploy.agent.jobs import BenchJob, BenchProtocol, Job, ModelFile, Order, Workspace
from catro_deploy.agent.results import Mode
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import ModelError, UsageError
from tests.onnx_files import write_conv_chain

PACKAGE = Path(catro_deploy.__file__).parent
ON_DEVICE = [
    PACKAGE / "__init__.py",
    PACKAGE / "errors.py",
    *(PACKAGE / "runtimes").glob("*.py"),
    *(PACKAGE / "agent").glob("*.py"),
]

PROTOCOL = BenchProtocol(
    warmup_s=0.05,
    seconds=0.4,
    min_samples=100,
    limit_s=5.0,
    block=10,
    bootstrap_resamples=200,
    seed=0,
)


def workspace(folder: Path) -> Workspace:
    return Workspace(str(folder), str(folder / "home"))


def job_for(folder: Path, *, original: dict, pruned: dict, **changes) -> BenchJob:
    models = {
        name: ModelFile(write_conv_chain(folder / f"{name}.onnx", **size).name, {})
        for name, size in (("original", original), ("pruned", pruned))
    }
    return replace(BenchJob("onnxruntime", 1, None, models, (Mode(1),), PROTOCOL), **changes)


def with_pruned(job: BenchJob, **changes) -> BenchJob:
    """``job`` with changes to its pruned model."""
    return replace(job, models={**job.models, "pruned": replace(job.models["pruned"], **changes)})


def agent(job: Job, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-m", "catro_deploy.agent"]
    order = json.dumps(to_json(Order(job, workspace(folder))))
    return subprocess.run(command, input=order, capture_output=True, text=True, check=False)


def test_eight_times_the_work_is_significantly_slower(tmp_path):
    large, small = {"layers": 8, "channels": 32, "size": 32}, {"layers": 1, "channels": 32, "size": 32}
    events: list[Event] = []
    result = run(job_for(tmp_path, original=large, pruned=small), workspace(tmp_path), events.append)
    low, high = result.speedup.ci95
    assert 1.5 < low <= result.speedup.median <= high
    assert result.speedup.median == result.original.p50_us / result.pruned.p50_us
    assert result.original.n == len(result.original.samples_us) >= 100
    assert result.facts.runtime.startswith("onnxruntime ")
    assert isinstance(events[-1], Progress)


def test_the_same_model_twice_shows_no_great_difference(tmp_path):
    size = {"layers": 2, "channels": 16, "size": 16}
    result = run(job_for(tmp_path, original=size, pruned=size), workspace(tmp_path), lambda _: None)
    assert 0.7 < result.speedup.median < 1.4


def test_a_process_answers_in_json_lines_and_never_imports_torch(tmp_path):
    answer = agent(job_for(tmp_path, original={"layers": 2}, pruned={}), tmp_path, "-X", "importtime")
    assert answer.returncode == 0, answer.stderr
    *progress, result = map(json.loads, answer.stdout.splitlines())
    assert {event["event"] for event in progress} == {"progress"}
    assert result["event"] == "result"
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in answer.stderr.splitlines()}
    assert {"numpy", "onnxruntime", "catro_deploy"} <= imported
    assert not imported & {"torch", "torchvision", "pydantic", "tomllib", "onnx", "typer", "rich", "safetensors"}


def test_an_error_is_one_line_with_its_class_and_exit_code(tmp_path):
    job = with_pruned(job_for(tmp_path, original={}, pruned={}), metadata={"plan_sha256": "another"})
    answer = agent(job, tmp_path)
    assert answer.returncode == 2
    error = json.loads(answer.stdout)
    assert (error["event"], error["kind"]) == ("error", "ModelError")
    assert "plan_sha256" in error["problem"]


def test_more_images_than_the_file_was_made_for(tmp_path):
    job = job_for(tmp_path, original={"batch": "batch"}, pruned={"batch": 1}, modes=(Mode(4),))
    with pytest.raises(UsageError, match=r"\b1\b.*\b4\b") as caught:
        run(job, workspace(tmp_path), lambda _: None)
    assert "export.dynamic_batch = true" in caught.value.hint


def test_a_dynamic_batch_is_measured_at_the_size_asked_for(tmp_path):
    size = {"batch": "batch", "layers": 3, "channels": 32, "size": 32}
    job = job_for(tmp_path, original=size, pruned=size, protocol=replace(PROTOCOL, seconds=0.1))
    one, sixteen = (run(replace(job, modes=(Mode(batch),)), workspace(tmp_path), lambda _: None) for batch in (1, 16))
    assert sixteen.original.p50_us > 4 * one.original.p50_us


def test_a_truncated_file_is_named(tmp_path):
    job = job_for(tmp_path, original={}, pruned={"channels": 64})
    file = tmp_path / job.models["pruned"].file
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(ModelError, match=r"pruned\.onnx"):
        run(job, workspace(tmp_path), lambda _: None)


def test_every_job_has_a_function():
    assert set(FUNCTIONS) == set(Job.KINDS)


DAMAGES = {
    "job": lambda order: order["job"].update(job="dance"),
    "workspace.folder": lambda order: order["workspace"].pop("folder"),
    "protocol.seconds": lambda order: order["job"]["protocol"].update(seconds="long"),
    "models.pruned.file": lambda order: order["job"]["models"]["pruned"].pop("file"),
    "format": lambda order: order["job"].update(format=0),
}


@pytest.mark.parametrize("field", DAMAGES)
def test_a_damaged_order_is_refused_by_the_field(tmp_path, field):
    order = to_json(Order(job_for(tmp_path, original={}, pruned={}), workspace(tmp_path)))
    DAMAGES[field](order)
    command = [sys.executable, "-m", "catro_deploy.agent"]
    answer = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=False)
    error = json.loads(answer.stdout)
    assert (answer.returncode, error["kind"]) == (2, "MessageError")
    assert f" {field} " in f"{error['problem']} ".replace(":", " ")


def test_what_is_no_json_is_refused():
    command = [sys.executable, "-m", "catro_deploy.agent"]
    for text in ("", "{", "[" * 100_000):
        answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert json.loads(answer.stdout)["kind"] == "MessageError"


@pytest.mark.parametrize("path", ON_DEVICE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_runs_on_devices_is_python_3_8(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    later = {"removeprefix", "removesuffix", "tomllib", "pairwise", "file_digest", "Self", "override"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import) for alias in node.names
    }
    assert not used & later
    keywords = {key.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for key in node.keywords}
    assert not keywords & {"strict", "slots", "kw_only"}


def test_annotations_are_not_evaluated_on_devices():
    """``list[int]`` and ``int | None`` in annotations are errors on Python 3.8 without this import."""
    for path in ON_DEVICE:
        if path.name not in ("errors.py", "bootstrap.py") and path != PACKAGE / "__init__.py":
            assert "from __future__ import annotations" in path.read_text(), path
