"""Whole profiles of a tiny network, really measured: interrupted, disturbed, and resumed."""

import json
import re
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from catro_deploy.agent.jobs import ProfileJob
from catro_deploy.agent.results import ProfileResult
from catro_deploy.calibration import ProfileProtocol
from catro_deploy.errors import ModelError, ProfileError
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.latency.profile import (
    LatencyProfile,
    find_profile,
    load_profile,
    measure_profile,
    measuring,
    profiles_of,
)
from catro_deploy.progress import Silent
from catro_deploy.records import Group
from catro_deploy.resources import profiles_folder
from catro_deploy.runs.holding import hold
from catro_deploy.runtimes import open_runner
from tests.forked import fork
from tests.latency.profile.quick import PROTOCOL, SHAPE, USE, Told, tiny_network
from tests.latency.profile.test_subject import Smooth, Switching
from tests.tiny import TinyNet


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[LatencyProfile, Path, Told]:
    """A profile, the folder that contains it, and the progress that was shown."""
    progress = Told()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CATRO_CACHE", str(tmp_path_factory.mktemp("measured")))
        return measure_profile(tiny_network(), SHAPE, USE, PROTOCOL, progress), profiles_folder(), progress


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_profile_by_openvino_has_times_of_each_layer(precision):
    use = replace(USE, target="x86-cpu-openvino", runtime="openvino", precision=precision)
    profile = measure_profile(tiny_network(), SHAPE, use, PROTOCOL.model_copy(update={"squares": 1}), Silent())
    assert profile.device["runtime"].startswith("openvino ")
    assert profile.fingerprint["runtime"] == profile.device["runtime"]
    assert set(profile.shapes) == {"conv1", "conv2", "conv3", "fc"}
    assert all(cell.us >= 0 for cells in profile.cells.values() for cell in cells.values())
    assert sum(max(cell.us for cell in profile.cells[shape].values()) for shape in profile.shapes.values()) > 1


def only_folder() -> Path:
    (folder,) = profiles_folder().iterdir()
    return folder


def test_a_profile_says_what_was_measured(measured):
    profile, _, progress = measured
    assert (profile.target, profile.fingerprint["threads"]) == ("x86-cpu", 1)
    assert profile.device["runtime"].startswith("onnxruntime ")
    assert set(profile.staircases) == {"conv1", "conv2"}
    assert [width for width, _ in profile.staircases["conv2"].swept] == list(range(3, 17))
    assert [width for width, _ in profile.staircases["conv1"].swept] == list(range(3, 13))
    for name, width in (("conv1", 12), ("conv2", 16)):
        assert 1 <= len(profile.staircases[name].candidates) <= PROTOCOL.candidates
        assert profile.staircases[name].candidates[-1] == width
    assert set(profile.shapes) == {"conv1", "conv2", "conv3", "fc"}
    assert all(cell.us > 0 and cell.nodes >= 1 for of in profile.cells.values() for cell in of.values())
    assert profile.errors.networks == min(PROTOCOL.held_out, profile.networks // 3)
    assert [title for title, _, _ in progress.bars][:2] == [
        "Finding the staircase",
        f"Timing layers in {profile.networks} networks",
    ]
    assert progress.bars[0][1:] == (14, 0)


def test_it_predicts_what_the_original_really_takes(measured, tmp_path):
    """Against an independent stopwatch; the machine may be busier now than it was then."""
    model, file = tiny_network(), tmp_path / "model.onnx"
    export_onnx(model, SHAPE, file, opset=18, metadata={})
    images = np.ones((1, *SHAPE), np.float32)
    with open_runner("onnxruntime", file, 1) as runner:
        times_us = []
        for _ in range(300):
            start = time.perf_counter()
            runner.infer(images)
            times_us.append((time.perf_counter() - start) * 1e6)
    assert 0.4 < measured[0].original_us / float(np.median(times_us)) < 2.5


def test_it_is_kept_and_found_again_for_the_same_network_whatever_its_weights(measured, monkeypatch):
    profile, folder, _ = measured
    monkeypatch.setenv("CATRO_CACHE", str(folder.parent))
    (kept,) = folder.iterdir()
    assert sorted(path.name for path in kept.iterdir()) == [".lock", "cells.csv", "profile.json"]
    assert load_profile(kept) == profile
    assert find_profile(tiny_network(seed=1), SHAPE, USE) == profile
    assert [path for path, _ in profiles_of("x86-cpu")] == [kept]


def test_it_is_not_found_for_another_network_or_use(measured, monkeypatch):
    monkeypatch.setenv("CATRO_CACHE", str(measured[1].parent))
    torch.manual_seed(0)
    assert find_profile(Smooth(3).eval(), SHAPE, USE) is None
    assert find_profile(TinyNet(4).eval(), SHAPE, USE) is None
    assert find_profile(tiny_network(), (3, 32, 32), USE) is None
    for change in ({"threads": 2}, {"batch": 2}, {"target": "another"}):
        assert find_profile(tiny_network(), SHAPE, measuring.Use(**(vars(USE) | change))) is None


def test_another_device_is_not_served(measured, monkeypatch):
    monkeypatch.setenv("CATRO_CACHE", str(measured[1].parent))
    here = measuring.device_facts(USE)
    monkeypatch.setattr(
        measuring, "device_facts", lambda use: replace(here, device=replace(here.device, cpu_model="Acme 9000"))
    )
    assert find_profile(tiny_network(), SHAPE, USE) is None


def test_a_damaged_profile_is_an_error_until_it_is_measured_again(monkeypatch):
    """It is measured anew: the samples of a finished profile are not used, even if a kill left them behind."""
    protocol = PROTOCOL.model_copy(update={"candidates": 2, "squares": 1, "held_out": 1})
    with monkeypatch.context() as patch:
        patch.setattr(measuring.SampleLog, "delete", lambda log: None)
        measure_profile(tiny_network(), SHAPE, USE, protocol, Silent())
    assert (only_folder() / "samples.jsonl").is_file()
    cells = only_folder() / "cells.csv"
    cells.write_text(cells.read_text()[:100])
    with pytest.raises(ProfileError, match=r"cells\.csv"):
        find_profile(tiny_network(), SHAPE, USE)
    progress = Told()
    again = measure_profile(tiny_network(), SHAPE, USE, protocol, progress)
    assert [done for _, _, done in progress.bars[:2]] == [0, 0]
    assert find_profile(tiny_network(), SHAPE, USE) == again


def test_fewer_networks_are_timed_where_all_would_take_too_long_but_one_square_always_is():
    protocol = PROTOCOL.model_copy(update={"candidates": 2, "squares": 5, "held_out": 1, "limit_s": 1e-6})
    profile = measure_profile(tiny_network(), SHAPE, USE, protocol, Silent())
    assert profile.networks == 4 + measuring.ORIGINALS
    assert profile.errors.networks == 1


@pytest.mark.parametrize(("seconds", "networks"), [(1000, 840), (400, 240), (320, 160), (300, 150), (20, 10)])
def test_networks_that_are_also_timed_as_a_whole_count_twice(seconds, networks):
    """At a second each, with 160 of them timed twice."""
    assert measuring._affordable(seconds, 160) == networks
    assert networks + min(networks, 160) == seconds


def measure(protocol: ProfileProtocol) -> None:
    measure_profile(tiny_network(), SHAPE, USE, protocol, Silent())


def wait_for_samples(process: BaseProcess, count: int) -> list[str]:
    """The lines of the log without its heading, once there are at least ``count``."""
    for _ in range(6000):
        found = list(profiles_folder().glob("*/samples.jsonl"))
        lines = found[0].read_text().split("\n")[1:-1] if found else []
        if len(lines) >= count:
            return lines
        assert process.is_alive(), "the process exited early"
        time.sleep(0.01)
    raise AssertionError("no samples were logged")


def test_a_killed_measurement_resumes_where_it_was(monkeypatch):
    """Killed in the squares, with half a line written; the sweep is complete."""
    protocol = PROTOCOL.model_copy(update={"together": 2, "squares": 4})
    process = fork(measure, protocol)
    wait_for_samples(process, 14 + 4)
    process.kill()
    process.join()
    file = only_folder() / "samples.jsonl"
    before = file.read_text().split("\n")[1:-1]
    with file.open("a") as broken:
        broken.write(before[0][: len(before[0]) // 2])
    asked: list[str] = []

    def watched(device: str, job: ProfileJob, *more: Any, **options: Any) -> ProfileResult:
        asked.extend(variant.name for variant in job.variants)
        return run_job(device, job, *more, **options)

    run_job = measuring.run_job
    monkeypatch.setattr(measuring, "run_job", watched)
    progress = Told()
    profile = measure_profile(tiny_network(), SHAPE, USE, protocol, progress)
    kept = {json.loads(line)["name"] for line in before}
    assert len(kept) == len(before) >= 18
    assert not kept & set(asked)
    assert progress.bars[0][1:] == (14, 14)
    assert progress.bars[1][1:] == (profile.networks, len(before) - 14)
    assert len(asked) == 14 + profile.networks - len(before)
    assert not file.exists()
    assert find_profile(tiny_network(), SHAPE, USE) == profile


def test_two_at_once_are_refused(tmp_path):
    """The lock is released when the measurement ends, even if it fails."""
    torch.manual_seed(0)
    model = Switching(3).eval()
    with pytest.raises(ModelError, match="the values"):
        measure_profile(model, SHAPE, USE, PROTOCOL, Silent())
    with (
        hold(only_folder() / ".lock", "here", "elsewhere"),
        pytest.raises(ProfileError, match=r"\bAnother\b.*/x86-cpu-") as caught,
    ):
        measure_profile(model, SHAPE, USE, PROTOCOL, Silent())
    assert "its profile will be used" in caught.value.hint


def test_a_network_without_anything_to_prune_is_refused(monkeypatch):
    def fixed(model: object, shape: object) -> object:
        network = trace(model, shape)
        groups = (Group(g.name, g.width, g.slots, g.producers, "to be ignored") for g in network.groups)
        return type(network)(network.layers, tuple(groups), network.head, network.sizes, network.input_shape)

    trace = measuring.trace
    monkeypatch.setattr(measuring, "trace", fixed)
    with pytest.raises(ProfileError, match="No channels"):
        measure_profile(tiny_network(), SHAPE, USE, PROTOCOL, Silent())


@pytest.mark.parametrize("image", [(1, 16, 16), (3, 0, 0)])
def test_a_network_that_fails_on_such_images_is_explained(image):
    for ask in (find_profile, lambda *given: measure_profile(*given, PROTOCOL, Silent())):
        with pytest.raises(ModelError, match=re.escape(str(image))):
            ask(tiny_network(), image, USE)


def test_a_profile_in_integers_is_another_and_has_all_layers(monkeypatch, tmp_path):
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path))
    model = tiny_network()
    found = measure_profile(model, SHAPE, replace(USE, precision="int8"), PROTOCOL, Silent())
    assert found.fingerprint["precision"] == "int8"
    assert find_profile(model, SHAPE, USE) is None
    assert all(cell.us > 0 for cells in found.cells.values() for cell in cells.values())


def test_a_linear_layer_that_the_runtime_fuses_with_its_activation_has_its_time():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(16, 3)).eval()
    found = measure_profile(model, SHAPE, USE, PROTOCOL, Silent())
    assert set(found.shapes) == {"0", "4", "6"}
    assert all(cell.us > 0 for cell in found.cells[found.shapes["4"]].values())
