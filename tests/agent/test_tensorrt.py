"""Jobs with TensorRT: the real bindings of several versions, with ONNX Runtime computing; see tests/doubles."""

import base64
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import onnxruntime
import pytest

from catro_deploy.agent.events import EngineBuilding, EngineBuilt, Event, FilePiece, Note, Progress
from catro_deploy.agent.jobs import BenchJob, BuildJob, Job, ModelFile, ModelJob, R, VerifyJob, read_result
from catro_deploy.agent.process import job_events
from catro_deploy.agent.results import EngineSettings, Mode
from catro_deploy.agent.wire import read, to_json
from catro_deploy.errors import CatroError, FaultError, MessageError, ModelError, RuntimeMissingError, UsageError
from catro_deploy.graph.onnx.interface import Interface, attach_
from catro_deploy.runtimes import open_runner
from tests.agent.test_agent import PROTOCOL, with_pruned, workspace
from tests.agent.test_verify import logits_of
from tests.onnx_files import write_conv_chain

ENGINE = EngineSettings(level=3, workspace_mib=64, dla=None, batches=(1, 2, 8))
WAYS = [(transfers, graph) for transfers in (False, True) for graph in (False, True)]
"""Whether transfers count, and whether the inference is a CUDA graph."""
OWN = {
    BenchJob: {"modes": (Mode(1, *WAYS[0]),), "protocol": PROTOCOL},
    BuildJob: {"batch": 1, "rebuilds": 0},
    VerifyJob: {"images": "images.npy", "mean": (0.5,) * 3, "std": (0.2,) * 3, "batch_size": 8},
}


def job_for(folder: Path, kind: type[ModelJob], **changes) -> ModelJob:
    """A job for two networks with a dynamic batch."""
    models = {}
    for network, layers in (("original", 4), ("pruned", 1)):
        metadata = {"network": network}
        path = write_conv_chain(folder / f"{network}.onnx", layers=layers, size=16, batch="n", metadata=metadata)
        models[network] = ModelFile(path.name, metadata)
    general = {"runtime": "tensorrt", "threads": 1, "engine": ENGINE, "models": models}
    return kind(**general | OWN[kind] | changes)


def done(job: Job[R], folder: Path) -> tuple[R, list[Event]]:
    """The result of a job, and the other events."""
    *events, last = job_events(job, workspace(folder))
    return read_result(job, last["result"]), [read(Event, event) for event in events]


def notes(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Note)]


@pytest.mark.usefixtures("every_tensorrt")
def test_build_bench_and_verify(tmp_path):
    result, events = done(job_for(tmp_path, BuildJob, rebuilds=2), tmp_path)
    assert "original.onnx" in notes(events)[0]
    for name in ("original", "pruned"):
        pieces = [base64.b64decode(e.base64) for e in events if isinstance(e, FilePiece) and e.name == name]
        (kept,) = [e for e in (tmp_path / "home" / "engines").glob("*.engine") if e.read_bytes() == b"".join(pieces)]
        sidecar = json.loads(kept.with_name(f"{kept.name}.json").read_text())
        engine = result.engines[name]
        written = to_json(engine)
        assert {key: written[key] for key in sidecar} == sidecar
        assert engine.metadata == {"network": name}
        assert engine.settings == ENGINE
        assert engine.place["sms"] == 8
        assert len(engine.rebuilds_us) == 2
        assert all(us > 0 for us in engine.rebuilds_us)
    assert len(result.engines["original"].layers["Layers"]) == 6

    modes = tuple(Mode(batch, *way) for batch in (1, 2) for way in WAYS)
    result, events = done(job_for(tmp_path, BenchJob, modes=modes), tmp_path)
    assert not notes(events)  # the engines exist
    assert result.mode == modes[0]
    assert tuple(one.mode for one in result.further) == modes[1:]
    assert result.facts.providers == ("TensorRT",)
    assert all(one.original.n >= 100 for one in (result, *result.further))
    # Other work on the machine may disturb one of them.
    assert median(one.speedup.median for one in (result, *result.further)) > 1

    pixels = np.random.default_rng(0).integers(0, 256, (11, 3, 16, 16)).astype(np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    _, events = done(job_for(tmp_path, VerifyJob), tmp_path)
    with open_runner("onnxruntime", tmp_path / "pruned.onnx", 1) as runner:
        expected = runner.infer(((pixels / 255 - 0.5) / 0.2).astype(np.float32))
    found = logits_of("pruned", events).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("every_tensorrt")
def test_engines_take_raw_pixels(tmp_path):
    mean, std = OWN[VerifyJob]["mean"], OWN[VerifyJob]["std"]
    job = job_for(tmp_path, VerifyJob)
    plain = onnx.load(tmp_path / "pruned.onnx")
    for name in job.models:
        file = tmp_path / f"{name}.onnx"
        proto = onnx.load(file)
        onnx.helper.set_model_props(proto, {"network": name, "layout": "NHWC", "output": "softmax"})
        onnx.save(proto, file)
        attach_(file, Interface("uint8", "nhwc", "softmax", mean, std, top_k=2))
    pixels = np.random.default_rng(0).integers(0, 256, (11, 3, 16, 16)).astype(np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    _, events = done(job, tmp_path)
    (expected,) = onnxruntime.InferenceSession(plain.SerializeToString()).run(
        None, {"image": ((pixels / 255 - 0.5) / 0.2).astype(np.float32)}
    )
    found = logits_of("pruned", events).reshape(expected.shape)
    apart = found - expected  # log-probabilities and logits differ by one number for each image
    np.testing.assert_allclose(apart, apart[:, :1].repeat(apart.shape[1], axis=1), rtol=1e-4, atol=1e-4)

    general = {"runtime": "tensorrt", "threads": 1, "engine": ENGINE, "models": job.models}
    result, _ = done(BuildJob(**general, batch=2, rebuilds=1), tmp_path)
    assert all(engine.rebuilds_us for engine in result.engines.values())
    result, _ = done(BenchJob(**general, modes=(Mode(2, *WAYS[3]),), protocol=PROTOCOL), tmp_path)
    assert result.original.n >= 100


@pytest.mark.usefixtures("tensorrt")
def test_an_engine_is_built_again_where_it_does_not_fit(tmp_path, monkeypatch):
    job = job_for(tmp_path, BuildJob)
    assert len(notes(done(job, tmp_path)[1])) == 2
    assert notes(done(job, tmp_path)[1]) == []
    monkeypatch.setenv("CATRO_DOUBLE_GPU", "Another GPU")
    assert len(notes(done(job, tmp_path)[1])) == 2
    assert len(notes(done(replace(job, engine=replace(ENGINE, level=5)), tmp_path)[1])) == 2


def fails(job: Job, folder: Path, kind: type[CatroError], says: str) -> CatroError:
    with pytest.raises(kind, match=says) as caught:
        done(job, folder)
    assert "Traceback" not in str(caught.value)
    return caught.value


@pytest.mark.usefixtures("tensorrt")
def test_a_node_that_tensorrt_does_not_know_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_DOUBLE_UNSUPPORTED", "GlobalAveragePool")
    error = fails(
        job_for(tmp_path, BuildJob),
        tmp_path,
        ModelError,
        r"original\.onnx[\s\S]*\bnode 4 \(GlobalAveragePool\)",
    )
    assert "opset" in error.hint


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.parametrize(
    ("variable", "value", "kind", "says"),
    [
        ("CATRO_DOUBLE_NO_GPU", "1", RuntimeMissingError, "no GPU"),
        ("CATRO_DOUBLE_NO_BUILD", "1", FaultError, r"original\.onnx"),
        ("CATRO_DOUBLE_GPU_BYTES", "100", FaultError, "memory"),
    ],
)
def test_what_goes_wrong_on_the_gpu(tmp_path, monkeypatch, variable, value, kind, says):
    monkeypatch.setenv(variable, value)
    assert fails(job_for(tmp_path, BenchJob), tmp_path, kind, says).hint
    engines = list((tmp_path / "home").rglob("*.part"))
    assert engines == []


def dla_job(folder: Path, kind: type[ModelJob] = BuildJob, **changes) -> ModelJob:
    """A job for networks with a batch of one, on the second DLA core."""
    job = job_for(folder, kind, engine=replace(ENGINE, dla=1), **changes)
    for name, layers in (("original", 4), ("pruned", 1)):
        write_conv_chain(folder / f"{name}.onnx", layers=layers, size=16, metadata={"network": name})
    return job


@pytest.mark.usefixtures("tensorrt")
def test_a_dla_core_that_is_not_there(tmp_path):
    assert "dla" in fails(dla_job(tmp_path), tmp_path, RuntimeMissingError, r"core 1\b.*\b0\b").hint


@pytest.mark.usefixtures("every_tensorrt")
def test_an_engine_runs_on_the_dla_core_that_it_was_built_for(tmp_path, monkeypatch):
    """The double loads a DLA's engine only if its runtime is set to that core; the default is core 0."""
    monkeypatch.setenv("CATRO_DOUBLE_DLA", "2")
    result, events = done(dla_job(tmp_path), tmp_path)
    assert result.engines["pruned"].settings.dla == 1
    assert "the DLA runs all of pruned.onnx" in notes(events)
    assert done(dla_job(tmp_path, BenchJob), tmp_path)[0].original.n >= 100


@pytest.mark.usefixtures("tensorrt")
def test_layers_that_fall_back_from_the_dla_are_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_DOUBLE_DLA", "2")
    monkeypatch.setenv("CATRO_DOUBLE_DLA_REFUSES", "GlobalAveragePool,Flatten")
    found = notes(done(dla_job(tmp_path), tmp_path)[1])
    (note,) = [one for one in found if one.startswith("original.onnx: ")]
    assert note.startswith("original.onnx: 1 parts run on the DLA, 2 layers on the GPU: ")


@pytest.mark.usefixtures("tensorrt")
def test_a_dla_that_runs_nothing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_DOUBLE_DLA", "2")
    monkeypatch.setenv("CATRO_DOUBLE_DLA_REFUSES", "Conv,GlobalAveragePool,Flatten")
    for _ in range(2):  # the engine is not kept
        error = fails(dla_job(tmp_path), tmp_path, ModelError, r"original\.onnx.*\b6\b")
        assert "fp16 and int8 only" in error.hint


@pytest.mark.usefixtures("tensorrt")
def test_a_dynamic_batch_on_a_dla_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_DOUBLE_DLA", "2")
    job = job_for(tmp_path, BuildJob, engine=replace(ENGINE, dla=1))
    assert "export.dynamic_batch = false" in fails(job, tmp_path, UsageError, "DLA").hint


@pytest.mark.usefixtures("every_tensorrt")
def test_each_batch_has_a_profile_and_takes_the_memory_of_that_only(tmp_path, monkeypatch):
    """The double takes 1000 bytes of activations per image, for the largest batch of the profile."""
    engine = replace(ENGINE, batches=(1, 64))
    monkeypatch.setenv("CATRO_DOUBLE_GPU_BYTES", "60000")
    assert done(job_for(tmp_path, BenchJob, engine=engine), tmp_path)[0].original.n >= 100
    job = job_for(tmp_path, BenchJob, engine=engine, modes=(Mode(64, *WAYS[0]),))
    assert "bench.batch" in fails(job, tmp_path, FaultError, "memory").hint


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.parametrize(("asked", "integrated", "mib"), [(None, True, 1024), (None, False, None), (64, True, 64)])
def test_on_memory_that_the_processor_shares_a_quarter_is_the_workspace(tmp_path, monkeypatch, asked, integrated, mib):
    monkeypatch.setenv("CATRO_DOUBLE_GPU_BYTES", str(4 << 30))
    if integrated:
        monkeypatch.setenv("CATRO_DOUBLE_INTEGRATED", "1")
    result, _ = done(job_for(tmp_path, BuildJob, engine=replace(ENGINE, workspace_mib=asked)), tmp_path)
    assert result.engines["original"].settings.workspace_mib == mib
    engine = next((tmp_path / "home" / "engines").glob("*.engine")).read_bytes()
    assert json.loads(engine.split(b"\n")[1])["workspace"] == (None if mib is None else mib << 20)


@pytest.mark.usefixtures("tensorrt")
def test_what_cannot_be_captured_is_measured_without_cuda_graphs(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_DOUBLE_NO_CAPTURE", "1")
    modes = (Mode(1, transfers=False, cuda_graph=True), Mode(1, transfers=False, cuda_graph=False))
    result, _ = done(job_for(tmp_path, BenchJob, modes=modes), tmp_path)
    assert (result.mode, result.further) == (modes[1], ())
    assert result.warnings[0].startswith("Measured without CUDA graphs, which cannot be captured for these networks")


@pytest.mark.usefixtures("tensorrt")
def test_building_is_reported_so_that_the_limit_of_a_job_does_not_include_it(tmp_path):
    _, events = done(job_for(tmp_path, BenchJob), tmp_path)
    building, built, *_, measured = kinds = [type(event) for event in events if not isinstance(event, Note)]
    assert (building, built, measured) == (EngineBuilding, EngineBuilt, Progress)
    assert kinds[:4] == [building, built, building, built]
    assert set(kinds[4:]) == {measured}


@pytest.mark.usefixtures("tensorrt")
def test_an_engine_belongs_to_a_power_mode(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program = tmp_path / "nvpmodel"
    for mode, count in (("15W", 2), ("15W", 0), ("MAXN", 2)):
        program.write_text(f"#!/bin/sh\necho NV Power Mode: {mode}\n")
        program.chmod(0o755)
        result, events = done(job_for(tmp_path, BuildJob), tmp_path)
        assert result.engines["original"].place["power_mode"] == mode
        assert len(notes(events)) == count


@pytest.mark.usefixtures("tensorrt")
def test_the_wrong_network(tmp_path):
    job = with_pruned(job_for(tmp_path, BuildJob), metadata={"network": "another"})
    fails(job, tmp_path, ModelError, r"\bnetwork\b.*'another'")


@pytest.mark.usefixtures("tensorrt")
def test_more_images_than_the_engine_takes(tmp_path):
    job = job_for(tmp_path, BenchJob, modes=(Mode(9, *WAYS[0]),))
    fails(job, tmp_path, ModelError, r"\(9, 3, 16, 16\)")


def test_a_runtime_without_engines(tmp_path):
    fails(job_for(tmp_path, BuildJob, runtime="onnxruntime"), tmp_path, UsageError, r"\bonnxruntime\b")


def test_a_job_that_does_not_say_how_to_build(tmp_path):
    for kind in (BuildJob, BenchJob):
        job = job_for(tmp_path, kind, engine=None)
        fails(job, tmp_path, MessageError, rf"\b{job.NAME}\b.*engine = null")


def test_no_tensorrt(tmp_path):
    error = fails(job_for(tmp_path, BuildJob), tmp_path, RuntimeMissingError, "TensorRT")
    assert "apt-get install python3-libnvinfer" in error.hint


OPEN = """
import sys
from dataclasses import replace
from pathlib import Path
from catro_deploy.errors import CatroError
from catro_deploy.runtimes import open_runner
try:
    with open_runner("tensorrt", Path(sys.argv[1]), 1) as runner:
        print("loaded", runner.image_shape)
except CatroError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.usefixtures("tensorrt")
def test_an_engine_from_elsewhere_is_refused_with_the_reason(tmp_path, monkeypatch):
    done(job_for(tmp_path, BuildJob), tmp_path)
    engine = next((tmp_path / "home" / "engines").glob("*.engine"))

    def opened() -> str:
        return subprocess.run([sys.executable, "-c", OPEN, engine], capture_output=True, text=True, check=True).stdout

    assert opened() == "loaded (3, 16, 16)\n"
    sidecar = engine.with_name(f"{engine.name}.json")
    recorded = json.loads(sidecar.read_text())
    recorded["place"] |= {"tensorrt": "10.3.0", "sms": 16}
    sidecar.write_text(json.dumps(recorded))
    said = opened()
    assert said.startswith("ModelError")
    assert "elsewhere or in another power mode: tensorrt 10.3.0 there, 11.4.0.106 here; sms 16 there, 8 here" in said
    assert "catro-deploy build" in said
    sidecar.unlink()
    assert "has no sidecar that says where it was built" in opened()


@pytest.mark.usefixtures("tensorrt")
def test_a_damaged_engine_is_built_again(tmp_path):
    job = job_for(tmp_path, BuildJob)
    done(job, tmp_path)
    for engine in (tmp_path / "home" / "engines").glob("*.engine"):
        engine.write_bytes(engine.read_bytes()[:-1])
    assert len(notes(done(job, tmp_path)[1])) == 2
    assert notes(done(job, tmp_path)[1]) == []
