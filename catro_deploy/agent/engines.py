"""TensorRT engines of this device, each built once per ONNX file, version of TensorRT, GPU, and settings.

Networks are strongly typed, so the precision is exactly that of the ONNX file. Layers that a DLA cannot run fall back
to the GPU, and are counted; ``batches`` are used for ONNX files with a dynamic batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.agent.events import EngineBuilding, EngineBuilt, Note
from catro_deploy.agent.onnx_metadata import onnx_metadata
from catro_deploy.agent.store import storage_errors
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import FaultError, ModelError, RuntimeMissingError, UsageError
from catro_deploy.runtimes.cuda import shared_memory_bytes
from catro_deploy.runtimes.trt_engine import import_tensorrt, loaded, place_of, polygraphed, sidecar_of, typing_hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from catro_deploy.agent.events import Emit
    from catro_deploy.agent.results import EngineSettings

__all__ = ["built", "effective", "engine_of", "layers_of", "placed"]

MIB = 1 << 20
# Fraction of memory shared with the processor that TensorRT may use to try kernels. Its own default is
# all of it, and on such boards the system kills a process that takes that much.
WORKSPACE_SHARE = 0.25
SHOWN = 6
DLA_LIMITS = (
    "A DLA runs fp16 and int8 only, and not every layer. Leave out [build] dla, or change the network or precision."
)


def engine_of(onnx: Path, settings: EngineSettings, home: Path, emit: Emit) -> Path:
    """The engine of ``onnx``, with its sidecar, built now if there is none below ``home``.

    Raises:
        ModelError: TensorRT cannot run the network, or the DLA can run none of its layers.
        UsageError: the network takes any number of images, and a DLA is requested.
        RuntimeMissingError: TensorRT or a GPU is missing, or a DLA that the settings request.
        FaultError: it could not be built.
        StorageError: the disk is full.
    """
    place, digest = place_of(), hashlib.sha256(onnx.read_bytes()).hexdigest()
    settings = effective(settings)
    key = hashlib.sha256(json.dumps([digest, place, to_json(settings)], sort_keys=True).encode()).hexdigest()
    engine = home / "engines" / f"{key}.engine"
    if _is_whole(engine):
        os.utime(str(engine))
        emit(EngineBuilt())
        return engine
    emit(Note(f"building the TensorRT engine of {onnx.name}: this takes a while"))
    emit(EngineBuilding())
    began = time.monotonic()
    content = built(onnx, settings, _timing_cache(home, place))
    sidecar = {
        "onnx_sha256": digest,
        "engine_sha256": hashlib.sha256(content).hexdigest(),
        "place": place,
        "settings": to_json(settings),
        "metadata": onnx_metadata(onnx),
        "seconds": time.monotonic() - began,
    }
    with storage_errors(home):
        engine.parent.mkdir(parents=True, exist_ok=True)
        _write(engine, content)
        _write(sidecar_of(engine), json.dumps(sidecar, indent=1).encode())
    if settings.dla is not None:
        emit(Note(_placement(engine, onnx.name)))
    emit(EngineBuilt())
    return engine


def effective(settings: EngineSettings) -> EngineSettings:
    """``settings`` with a workspace limit if they have none, on boards where TensorRT's own default is too much."""
    shared = shared_memory_bytes()
    if settings.workspace_mib is not None or shared is None:
        return settings
    return replace(settings, workspace_mib=max(1, int(WORKSPACE_SHARE * shared / MIB)))


def built(onnx: Path, settings: EngineSettings, timing_cache: Path | None) -> bytes:
    """A new engine of ``onnx``; kernels in the ``timing_cache`` are not timed again.

    Raises:
        As ``engine_of``.
    """
    trt = import_tensorrt()
    with polygraphed(f"Building the engine of {onnx.name}"):
        from polygraphy.backend.trt import create_network, get_trt_logger

        builder, network = create_network(strongly_typed=True)
        parser = trt.OnnxParser(network, get_trt_logger())
        if not parser.parse_from_file(str(onnx)):
            raise _refusal(onnx, parser, trt)
        config = _config(trt, builder, network, settings, timing_cache)
        content = builder.build_serialized_network(network, config)
        if content is None:
            raise FaultError(
                f"TensorRT {trt.__version__} could not build the engine of {onnx.name}.",
                "If memory ran out, stop other programs on the GPU, or reduce [build] workspace_mib."
                + typing_hint(trt),
            )
        if timing_cache is not None:
            with storage_errors(timing_cache.parent):
                timing_cache.parent.mkdir(parents=True, exist_ok=True)
                _write(timing_cache, bytes(config.get_timing_cache().serialize()))
        return bytes(content)


def layers_of(engine: Path) -> Any:  # noqa: ANN401 - JSON, as TensorRT makes it
    """The engine as TensorRT's inspector describes it: its layers after all fusions, with types and formats."""
    found, _ = loaded(engine)
    trt = import_tensorrt()
    text = found.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    return json.loads(text)


def _config(trt: Any, builder: Any, network: Any, settings: EngineSettings, timing_cache: Path | None) -> Any:  # noqa: ANN401
    from polygraphy.backend.trt import Profile, create_config

    options: dict[str, Any] = {
        "builder_optimization_level": settings.level,
        "profiling_verbosity": trt.ProfilingVerbosity.DETAILED,
    }
    if settings.workspace_mib is not None:
        options["memory_pool_limits"] = {trt.MemoryPoolType.WORKSPACE: settings.workspace_mib * MIB}
    if timing_cache is not None and timing_cache.is_file():
        options["load_timing_cache"] = str(timing_cache)
    given = network.get_input(0)
    if settings.dla is not None:
        if given.shape[0] < 0:  # https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/
            raise UsageError(  # dla-layer-restrictions.html: "DLA does not support dynamic dimensions"
                "The network takes any number of images at a time; a DLA runs networks of a fixed batch only.",
                "Set export.dynamic_batch = false, export and build again; or leave out [build] dla.",
            )
        if builder.num_DLA_cores <= settings.dla:
            raise RuntimeMissingError(
                f"DLA core {settings.dla} is requested; this device has {builder.num_DLA_cores} according to TensorRT "
                f"{trt.__version__}.",
                "Leave out [build] dla. TensorRT 10.8 to 11.4.0 do not support DLA at all.",
            )
    if given.shape[0] < 0:
        shapes = [(batch, *tuple(given.shape)[1:]) for batch in settings.batches]
        options["profiles"] = [Profile().add(given.name, shape, shape, shape) for shape in shapes]
    config = create_config(builder, network, **options)
    if settings.dla is not None:  # not Polygraphy's use_dla: it requests precision constraints before TensorRT 11
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = settings.dla
        config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
    return config


def _placement(engine: Path, name: str) -> str:
    """Which part of a new ``engine`` the DLA runs, according to TensorRT's inspector.

    Other layers silently fall back to the GPU.

    Raises:
        ModelError: the DLA runs nothing.
    """
    on_dla, on_gpu = placed(layers_of(engine))
    if not on_dla:
        engine.unlink()
        sidecar_of(engine).unlink()
        raise ModelError(f"The DLA runs no layer of {name}: all {len(on_gpu)} fell back to the GPU.", DLA_LIMITS)
    if not on_gpu:
        return f"the DLA runs all of {name}"
    return f"{name}: {len(on_dla)} parts run on the DLA, {len(on_gpu)} layers on the GPU: {', '.join(on_gpu[:SHOWN])}"


def placed(layers: Any) -> tuple[list[str], list[str]]:  # noqa: ANN401 - JSON, as TensorRT makes it
    """Names of the layers that a DLA runs, each a part of the network, and of those that the GPU runs."""
    found: tuple[list[str], list[str]] = ([], [])
    for layer in layers["Layers"]:
        found["DLA" not in str(layer["LayerType"])].append(str(layer["Name"]))
    return found


def _refusal(onnx: Path, parser: Any, trt: Any) -> ModelError:  # noqa: ANN401 - trt.OnnxParser
    faults = [parser.get_error(place) for place in range(parser.num_errors)]
    lines = [f"TensorRT {trt.__version__} cannot run {onnx.name}:"]
    lines += [
        f"  node {fault.node_name() or fault.node()} ({fault.node_operator()}): {fault.desc()}" for fault in faults
    ]
    return ModelError(
        "\n".join(lines),
        "Replace that operation in the network, or export for another opset ([export] opset): TensorRT 10 supports 9 "
        f"to 20.{typing_hint(trt)}",
    )


def _is_whole(engine: Path) -> bool:
    """Whether it exists and has the hash in its sidecar."""
    try:
        sidecar: dict[str, Any] = json.loads(sidecar_of(engine).read_text(encoding="utf-8"))
        return bool(hashlib.sha256(engine.read_bytes()).hexdigest() == sidecar["engine_sha256"])
    except (OSError, ValueError, KeyError):
        return False


def _timing_cache(home: Path, place: Mapping[str, Any]) -> Path:
    name = "-".join(str(value) for value in place.values())
    return home / "engines" / f"{re.sub(r'[^A-Za-z0-9.]+', '_', name)}.timing"


def _write(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
