"""``ship``: a folder with the network to ship, a record of everything its user must know, and a program."""

import shutil
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from catro_deploy.errors import MissedError, RunFolderError
from catro_deploy.files import file_hash, replacing, write_text
from catro_deploy.graph.onnx.footprint import footprint_of
from catro_deploy.graph.onnx.ir import ir_of
from catro_deploy.progress import Progress
from catro_deploy.records import Input, Plan, Port, Precision, Shipped, ShippedAlso, ShippedFile
from catro_deploy.report.budgets import budget_figures, missed_words
from catro_deploy.report.code import infer_code
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import save
from catro_deploy.settings import Settings
from catro_deploy.stages.served import model_of, served_precisions
from catro_deploy.targets import load_target
from catro_deploy.transports.sides import Side, sides_of

__all__ = ["ship"]

INFER = "infer.py"


def ship(settings: Settings, run: RunFolder, progress: Progress) -> Shipped:
    """Copy the pruned network, in the served precision, to ``ship/`` of ``run``.

    The folder also gets model.json, infer.py, which classifies image files, and for OpenVINO the network as IR.

    Name, type and shape of input and output are read from the file itself. Files of an earlier ``ship`` are removed.

    Raises:
        RunFolderError: the plan or the network's file is missing or damaged.
        TargetError: the target is not known.
        StorageError: the files could not be written.
        MissedError: the file, or the memory that it needs, exceeds its budget; all files are written first.
    """
    plan = load_plan(run)
    source, precision = _served(settings, run)
    folder = run.shipped.parent
    takes, gives, *top = _ports(source)
    sides = sides_of(settings)
    served = {side.name: _served(side.settings, run) for side in sides}
    sources = list(dict.fromkeys(one for side in sides for one in _files(side, served[side.name][0], run)))
    batch = settings.bench.batch or load_target(settings.prune.target).batch
    memory = max(footprint_of(file, batch).memory_bytes for file in {file for file, _ in served.values()})
    whole = footprint_of(run.original_onnx, batch).memory_bytes
    for one in sources:
        with replacing(folder / one.name) as temporary:
            shutil.copyfile(one, temporary)
    shipped = Shipped(
        file=source.name,
        precision=precision,
        bytes=source.stat().st_size,
        original_bytes=run.original_onnx.stat().st_size,
        sha256=file_hash(source),
        target=plan.target,
        runtime=sides[0].target.runtime,
        input=_input(takes, plan, settings),
        output=gives,
        top=tuple(top),
        classes=plan.classes,
        plan_sha256=file_hash(run.plan),
        memory_bytes=memory,
        original_memory_bytes=whole,
        also={side.name: _also(side, *served[side.name]) for side in sides[1:]},
        ir=tuple(ShippedFile(one.name, one.stat().st_size, file_hash(one)) for one in sources if one.suffix != ".onnx"),
    )
    save(shipped, run)
    write_text(folder / INFER, infer_code(shipped))
    _remove_others(folder, {*(one.name for one in sources), run.shipped.name, INFER})
    if missed := missed_words(budget_figures(plan, None, shipped), ("size", "memory")):
        raise MissedError(
            missed,
            "Prune again (catro-deploy run --force), use a lower precision (--precision int8), or allow more with "
            "--max-size or --max-memory.",
        )
    return shipped


def _served(settings: Settings, run: RunFolder) -> tuple[Path, Precision]:
    """The served file of the pruned network, and its precision."""
    precision = served_precisions(run, settings)["pruned"]
    return run.path / model_of(run, "pruned", precision).file, precision


def _files(side: Side, file: Path, run: RunFolder) -> list[Path]:
    """The served ONNX ``file`` and, for OpenVINO, the IR made from it."""
    return [file, *(run.require(made, "export") for made in (ir_of(file) if side.target.takes_ir else ()))]


def _also(side: Side, file: Path, precision: Precision) -> ShippedAlso:
    return ShippedAlso(file.name, precision, file.stat().st_size, file_hash(file), side.target.runtime)


def _ports(source: Path) -> tuple[Port, ...]:
    """The input and the outputs of the ONNX file ``source``."""
    try:
        graph = onnx.load(source, load_external_data=False).graph
        return _port(graph.input[0]), _port(graph.output[0]), *map(_port, graph.output[1:])
    except (DecodeError, IndexError, KeyError) as error:
        raise RunFolderError(
            f"{source} is damaged: {error}.", f"Make it again: catro-deploy export --run {source.parent} --force"
        ) from None


def _port(value: Any) -> Port:  # noqa: ANN401 - onnx.ValueInfoProto
    """Name, type and shape of an input or an output; a dynamic dimension is a name."""
    tensor = value.type.tensor_type
    shape = tuple(size.dim_param or size.dim_value for size in tensor.shape.dim)
    return Port(value.name, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name, shape)


def _input(port: Port, plan: Plan, settings: Settings) -> Input:
    """``port`` with the meaning of its values, and how images are resized."""
    edges = [(value - mean) / std for mean, std in zip(plan.mean, plan.std, strict=True) for value in (0, 1)]
    raw = port.type == "uint8"
    return Input(
        **vars(port),
        layout="NHWC" if settings.export.layout == "nhwc" else "NCHW",
        colours="RGB" if plan.input_shape[0] == 3 else "grey",
        values="pixel" if raw else "(pixel / 255 - mean) / std",
        mean=plan.mean,
        std=plan.std,
        range=(0, 255) if raw else (min(edges), max(edges)),
        resize=settings.data.resize,
        interpolation=settings.data.interpolation,
    )


def _remove_others(folder: Path, names: set[str]) -> None:
    for file in folder.iterdir():
        if file.name not in names:
            file.unlink()
