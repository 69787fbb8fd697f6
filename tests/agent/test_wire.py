"""Jobs, events and results as JSON and back; a damaged one is refused, and the error names the field."""

import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catro_deploy.agent import device, events, jobs, results
from catro_deploy.agent.events import Event, Sample
from catro_deploy.agent.jobs import BenchJob, FactsJob, Job, StartRequest, read_result
from catro_deploy.agent.results import BenchResult, DoctorResult, FactsResult, Finding, Result, VerifyResult
from catro_deploy.agent.wire import FORMAT, parse, read, to_json
from catro_deploy.errors import MessageError

EVERY = [
    kind
    for module in (device, events, jobs, results)
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
    if kind not in (Job, jobs.ModelJob, Result)
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PLAIN = {
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=20),
    Any: JSON,
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if origin is tuple and inner[-1] is ...:
        return st.lists(values_of(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, inner))
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=9), values_of(inner[1]), max_size=3)
    if origin in (Job, Result):
        return st.sampled_from(sorted(origin.KINDS)).flatmap(lambda name: values_of(origin.KINDS[name]))
    if is_dataclass(origin):
        hints = get_type_hints(origin)
        return st.builds(origin, **{one.name: values_of(hints[one.name]) for one in fields(origin)})
    return st.none() | values_of(inner[0])


def test_every_type_is_among_them():
    assert {BenchJob, Sample, BenchResult, StartRequest, device.DeviceFacts} <= set(EVERY)
    assert {kind for tagged in (Job, Event, Result, jobs.Carried) for kind in tagged.KINDS.values()} <= set(EVERY)
    assert set(Job.KINDS) == set(Result.KINDS)
    assert all(kind.RESULT is Result.KINDS[name] for name, kind in Job.KINDS.items())


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_through_json_and_back_is_the_identity(kind, data):
    value = data.draw(values_of(kind))
    again = read(kind, parse(json.dumps(to_json(value), allow_nan=False), "text"))
    assert again == value
    assert type(again) is kind


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_field_that_is_missing_or_of_another_type_is_named(kind, data):
    written = to_json(data.draw(values_of(kind)))
    hints = get_type_hints(kind)
    for one in fields(kind):
        damaged = {**written, one.name: [["neither"]]}
        if hints[one.name] is not Any:
            assert one.name in refused(kind, damaged)
        if one.default is MISSING:
            assert f"lacks {one.name}" in refused(kind, {key: v for key, v in written.items() if key != one.name})


def refused(kind: type, data: Any) -> str:
    with pytest.raises(MessageError) as caught:
        read(kind, data)
    return caught.value.problem


BENCH = {
    "job": "bench", "format": FORMAT, "runtime": "onnxruntime", "threads": 1, "engine": None,
    "models": {"original": {"file": "a.onnx", "metadata": {}}, "pruned": {"file": "b.onnx", "metadata": {}}},
    "modes": [{"batch": 1}],
    "protocol": {
        "warmup_s": 0.5, "seconds": 1, "min_samples": 9, "limit_s": 2, "block": 1, "bootstrap_resamples": 9, "seed": 0,
        "settling": 2,
    },
    "complete": False, "soak_s": 1.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda job: job.pop("threads"), "The job bench lacks threads: an integer."),
        (lambda job: job.update(threads="two"), 'The job bench has threads = "two". Expected an integer.'),
        (lambda job: job.update(threads=True), "The job bench has threads = true. Expected an integer."),
        (lambda job: job.update(threads=1.0), "The job bench has threads = 1.0. Expected an integer."),
        (lambda job: job.update(complete=0), "The job bench has complete = 0. Expected true or false."),
        (lambda job: job["protocol"].pop("block"), "The job bench lacks protocol.block: an integer."),
        (
            lambda job: job["protocol"].update(seconds=float("nan")),
            "The job bench has protocol.seconds = NaN. Expected a finite number.",
        ),
        (lambda job: job["protocol"].update(seconds=10**400), "Expected a finite number."),
        (lambda job: job["models"]["pruned"].pop("file"), "The job bench lacks models.pruned.file: a string."),
        (lambda job: job["modes"].append({}), "The job bench lacks modes[1].batch: an integer."),
        (lambda job: job["modes"][0].update(speed=1), "has an unknown field modes[0].speed. Allowed fields: batch, "),
        (lambda job: job.update(engine={}), "The job bench lacks engine.level: an integer."),
        (lambda job: job.update(job="dance"), 'The job "dance" is not one of: bench, compare, build, verify'),
        (lambda job: job.update(job=["bench"]), "is not one of: bench"),
        (lambda job: job.pop("job"), "The job null is not one of"),
    ],
)
def test_what_is_wrong_and_what_is_allowed(damage, says):
    job = copy.deepcopy(BENCH)
    assert isinstance(read(Job, job), BenchJob)
    damage(job)
    assert says in refused(Job, job)


@pytest.mark.parametrize("found", [FORMAT + 1, str(FORMAT), None])
def test_sides_of_other_versions_refuse_each_other(found):
    answer = to_json(VerifyResult("onnxruntime 1"))
    for kind, data in ((Job, dict(BENCH)), (VerifyResult, answer)):
        says = refused(kind, {**data, "format": found, "new": 1})
        assert f"has format {json.dumps(found)}; this version of catro-deploy reads format {FORMAT}." in says


def test_the_result_of_another_job_is_refused():
    with pytest.raises(MessageError, match=r'"doctor".*\bfacts\b'):
        read_result(FactsJob("onnxruntime"), to_json(DoctorResult(())))


def test_a_damaged_result_names_its_field():
    answer = to_json(DoctorResult((Finding("numpy", "works", "2.0", True),)))
    answer["findings"][0]["needed"] = "yes"
    assert 'The result doctor has findings[0].needed = "yes". Expected true or false.' in refused(Result, answer)
    assert "Expected an object with device, runtime" in refused(FactsResult, [1])


@pytest.mark.parametrize(("text", "says"), [("{", r"\bfile\b.*JSON"), (b"\xff", "JSON"), ("[" * 10**5, "nested")])
def test_what_is_no_json(text, says):
    with pytest.raises(MessageError, match=says):
        parse(text, "file")


def test_what_is_none_by_default_is_left_out():
    assert to_json(results.Mode(4)) == {"batch": 4}
    assert to_json(results.Mode(4, transfers=False)) == {"batch": 4, "transfers": False}
    assert read(results.Mode, {"batch": 4, "transfers": None}) == results.Mode(4)


ON_DEVICE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from catro_deploy.agent.jobs import Job
from catro_deploy.agent.wire import read, to_json
print(json.dumps(to_json(read(Job, json.loads(sys.argv[2])))))
"""


def python_3_8() -> str | None:
    """A Python 3.8 that is really installed, not only a shim that fails."""
    places = [*Path.home().glob(".pyenv/versions/3.8.*/bin/python"), Path("/usr/bin/python3.8")]
    return next((str(place) for place in places if place.is_file()), None)


@pytest.mark.parametrize("python", [sys.executable, python_3_8()], ids=["this", "3.8"])
def test_a_python_without_any_package_reads_jobs(python):
    if python is None:
        pytest.skip("there is no Python 3.8")
    package = str(Path(jobs.__file__).parents[2])
    command = [python, "-I", "-S", "-c", ON_DEVICE, package, json.dumps(BENCH)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == BENCH
