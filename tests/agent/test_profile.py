"""Interleaved timings of the nodes of several networks."""

import itertools
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from catro_deploy.agent.agent import run
from catro_deploy.agent.events import Sample
from catro_deploy.agent.jobs import ProfileJob, Variant, VisitProtocol
from catro_deploy.agent.process import job_events
from catro_deploy.agent.profile import low_mean
from catro_deploy.errors import ModelError
from catro_deploy.runtimes import open_runner
from tests.agent.test_agent import workspace
from tests.onnx_files import write_conv_chain, write_graph

PROTOCOL = VisitProtocol(together=2, rounds=3, block_ms=1.0, min_runs=4, max_runs=10)


def job_for(
    folder, layers: dict[str, int], whole: tuple[str, ...] = (), runtime: str = "onnxruntime", **protocol
) -> ProfileJob:
    """A job for networks with these numbers of convolutions."""
    size = {"channels": 16, "size": 16}
    files = {name: write_conv_chain(folder / f"{name}.onnx", layers=count, **size) for name, count in layers.items()}
    return ProfileJob(
        runtime=runtime,
        threads=1,
        batch=1,
        seed=0,
        reference=write_conv_chain(folder / "reference.onnx", layers=2, **size).name,
        variants=tuple(Variant(name, file.name, name in whole) for name, file in files.items()),
        protocol=replace(PROTOCOL, **protocol),
    )


def samples_of(job: ProfileJob, folder) -> dict[str, Sample]:
    events: list[Sample] = []
    result = run(job, workspace(folder), events.append)
    assert result.runtime.startswith(f"{job.runtime} ")
    return {event.name: event for event in events}


def node_us(sample: Sample) -> float:
    return sum(float(np.median(node.rounds_us)) for node in sample.nodes)


def test_the_low_mean_by_hand():
    # Of ten: without the fastest, the next four.
    assert low_mean(np.array([90.0, 1, 2, 3, 4, 5, 60, 70, 80, 100])) == (2 + 3 + 4 + 5) / 4
    # Of four, the faster half; of three, the fastest; of one, itself.
    assert low_mean(np.array([8.0, 2, 4, 6])) == 3
    assert low_mean(np.array([8.0, 2, 4])) == 2
    assert low_mean(np.array([7.0])) == 7
    np.testing.assert_array_equal(low_mean(np.array([[8.0, 1], [2, 40], [4, 3], [6, 20]])), [3, 2])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.randoms())
def test_the_low_mean_is_at_most_the_median_whatever_the_order(times, random):
    found = low_mean(np.array(times))
    assert min(times) <= found * (1 + 1e-9)
    assert found <= np.median(times) * (1 + 1e-9)
    random.shuffle(times)
    assert low_mean(np.array(times)) == pytest.approx(found)


def test_disturbances_do_not_count_up_to_half_of_the_runs():
    quiet = np.full(20, 100.0)
    disturbed = quiet.copy()
    disturbed[::2] = 10_000
    assert low_mean(disturbed) == low_mean(quiet) == 100


RUNTIMES = pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])


@RUNTIMES
def test_each_network_becomes_a_sample_with_a_value_for_each_round(tmp_path, runtime):
    samples = samples_of(job_for(tmp_path, {"a": 1, "b": 2, "c": 8}, ("b",), runtime), tmp_path)
    assert list(samples) == ["a", "b", "c"]
    for name, sample in samples.items():
        assert len(sample.reference_us) == 3
        assert all(us > 0 for us in sample.reference_us)
        assert all(len(node.rounds_us) == 3 for node in sample.nodes)
        assert sample.seconds > 0
        assert (sample.whole_us is not None) == (name == "b")
    assert len(samples["b"].whole_us) == 3
    assert len(samples["c"].nodes) == len(samples["a"].nodes) + 7


@RUNTIMES
def test_more_work_takes_more_time(tmp_path, runtime):
    samples = samples_of(job_for(tmp_path, {"one": 1, "eight": 8}, runtime=runtime, rounds=5), tmp_path)
    assert node_us(samples["eight"]) > 3 * node_us(samples["one"])


@RUNTIMES
def test_nodes_add_up_to_about_the_whole(tmp_path, runtime):
    """The profiler counts whole microseconds and adds overhead; the whole includes the time between the nodes."""
    job = job_for(tmp_path, {"model": 12}, ("model",), runtime, rounds=5)
    sample = samples_of(job, tmp_path)["model"]
    assert 0.5 < node_us(sample) / float(np.median(sample.whole_us)) < 2


def test_what_disturbs_a_visit_shows_in_its_round(tmp_path, monkeypatch):
    """A real network; each of its inferences in the second of three visits is delayed by 20 ms."""
    job = job_for(tmp_path, {"a": 1}, whole=("a",), min_runs=4, max_runs=4)
    visit = 1 + 4  # a warm-up, and the runs

    def opened(runtime, file, threads, profiling=False):
        runner = open_runner(runtime, file, threads, profiling=profiling)
        if file.name == "a.onnx" and not profiling:
            infer, calls = runner.infer, itertools.count()

            def held_up(images):
                time.sleep(0.02 if visit <= next(calls) < 2 * visit else 0)
                return infer(images)

            runner.infer = held_up
        return runner

    monkeypatch.setattr("catro_deploy.agent.profile.open_runner", opened)
    first_us, second_us, third_us = samples_of(job, tmp_path)["a"].whole_us
    assert second_us >= 20_000
    assert min(first_us, third_us) < second_us


@RUNTIMES
def test_nodes_have_the_names_of_the_file(tmp_path, runtime):
    sizes = [1, 1, 256, 256]  # so that each takes a microsecond, the least that OpenVINO counts
    nodes = [
        helper.make_node("Softmax", ["image"], ["a"], name="layer::0", axis=2),
        helper.make_node("Softmax", ["a"], ["layer::1"], name="layer::1", axis=3),
    ]
    file = write_graph(tmp_path / "two.onnx", nodes, [], sizes, sizes, gives_name="layer::1").name
    job = replace(job_for(tmp_path, {}, runtime=runtime), reference=file, variants=(Variant("two", file, False),))
    assert [node.name for node in samples_of(job, tmp_path)["two"].nodes] == ["layer::0", "layer::1"]


def test_several_images_at_a_time_take_longer(tmp_path):
    file = str(write_conv_chain(tmp_path / "any.onnx", layers=4, channels=16, size=16, batch="batch"))
    job = replace(job_for(tmp_path, {}), reference=file, variants=(Variant("any", file, False),))
    one, eight = (samples_of(replace(job, batch=batch), tmp_path)["any"] for batch in (1, 8))
    assert node_us(eight) > 3 * node_us(one)


def test_through_a_pipe(tmp_path):
    *samples, result = job_events(job_for(tmp_path, {"a": 1, "b": 2, "c": 3}), workspace(tmp_path))
    assert [sample["name"] for sample in samples] == ["a", "b", "c"]
    assert result["event"] == "result"
    assert json.dumps(samples, allow_nan=False)


def test_a_network_that_cannot_be_run_is_named_and_those_before_it_are_reported(tmp_path):
    job = job_for(tmp_path, {"a": 1, "b": 1, "broken": 2})
    (tmp_path / "broken.onnx").write_bytes(b"half")
    samples = []
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        run(job, workspace(tmp_path), samples.append)
    assert [event.name for event in samples] == ["a", "b"]
