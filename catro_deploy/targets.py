"""Targets: the kinds of devices that networks are pruned for, one TOML file each.

A file may contain ``extends = "jetson-orin"``: it then holds only what differs from that target of the package.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from catro_deploy import resources
from catro_deploy.errors import TargetError
from catro_deploy.files import write_text
from catro_deploy.records import Precision
from catro_deploy.toml import read_toml

__all__ = ["BY_KIND", "ON_GPU", "GpuFigures", "Precision", "Target", "add_target", "load_target"]


STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
# Runtimes that need an NVIDIA GPU, and the package that each is in.
ON_GPU = {
    "tensorrt": "tensorrt",
    "onnxruntime-cuda": "onnxruntime-gpu",
    "onnxruntime-tensorrt": "onnxruntime-gpu",
}
# The runtimes of each kind of target.
BY_KIND = {
    "cpu": ("onnxruntime", "openvino", "pytorch"),
    "igpu": ("openvino-gpu",),
    "npu": ("openvino-npu",),
    "gpu": (*ON_GPU, "pytorch"),
    "jetson": (*ON_GPU, "pytorch"),
}
# Keys that a file does not inherit from the target that it extends.
NOT_INHERITED = ("title", "notes")
FIT_NAME = re.compile(r"\w[\w.+-]*")


class GpuFigures(BaseModel):
    """Peak figures of a GPU, without sparsity. A multiply-add counts as two operations.

    ``bandwidth_gb_s`` is that of its memory in 1e9 bytes per second; ``l2_mib`` is None if it is not known.
    """

    model_config = STRICT

    sms: PositiveInt
    clock_mhz: PositiveFloat
    fp32_flop_per_clock_per_sm: PositiveFloat
    fp16_flop_per_clock_per_sm: PositiveFloat
    int8_flop_per_clock_per_sm: PositiveFloat
    bandwidth_gb_s: PositiveFloat
    l2_mib: PositiveFloat | None = None

    def peak_flops(self, precision: Precision) -> float:
        """Peak operations per second in ``precision``: SMs x operations per clock and SM x clock."""
        per_clock = {
            "fp32": self.fp32_flop_per_clock_per_sm,
            "fp16": self.fp16_flop_per_clock_per_sm,
            "int8": self.int8_flop_per_clock_per_sm,
        }
        return self.sms * per_clock[precision] * self.clock_mhz * 1e6


class Target(BaseModel):
    """A kind of device and how networks run on it; ``sources`` gives the source of each of its ``figures``.

    A ``gpu`` is NVIDIA's, an ``igpu`` and an ``npu`` are Intel's.

    ``threads`` are those of a CPU's runtime. ``transport``: how work gets there; a ``bundle`` is carried by hand;
    ``none`` is for estimates only. ``power_mode`` is the device's own name of the clocks that the figures are of.
    """

    model_config = STRICT

    name: str
    title: str
    kind: Literal["cpu", "gpu", "jetson", "igpu", "npu"]
    runtime: Literal[
        "onnxruntime", "onnxruntime-cuda", "onnxruntime-tensorrt", "openvino", "openvino-gpu", "openvino-npu",
        "tensorrt", "pytorch",
    ]  # fmt: skip
    precision: Precision
    threads: PositiveInt = Field(1, le=1024)
    batch: PositiveInt
    transport: Literal["local", "ssh", "bundle", "none"] = "local"
    power_mode: str = ""
    gpu: GpuFigures | None = None
    sources: dict[str, str]
    notes: str = ""

    @property
    def figures(self) -> dict[str, str | int | float]:
        """All values that need a source, by their names in ``sources``."""
        threads = {"threads": self.threads} if self.kind == "cpu" else {}
        power_mode = {"power_mode": self.power_mode} if self.power_mode else {}
        gpu = self.gpu.model_dump(exclude_none=True) if self.gpu else {}
        own = {"precision": self.precision, **threads, "batch": self.batch, **power_mode}
        return own | {f"gpu.{name}": value for name, value in gpu.items()}

    @property
    def takes_ir(self) -> bool:
        """Whether it runs networks with OpenVINO, which has its own file format."""
        return self.runtime.partition("-")[0] == "openvino"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.gpu is None) == (self.kind in ("gpu", "jetson")):
            problem = "has no [gpu] table" if self.gpu else "needs the table [gpu]"
            raise ValueError(f'a target of kind "{self.kind}" {problem}')
        if self.runtime not in BY_KIND[self.kind]:
            raise ValueError(f'the runtime of a target of kind "{self.kind}" cannot be {self.runtime}')
        if self.kind == "cpu":
            if "threads" not in self.model_fields_set:
                raise ValueError('a target of kind "cpu" must set threads')
            if self.precision != "fp32":
                raise ValueError('a target of kind "cpu" computes in fp32 in this version')
        elif self.threads != 1:
            raise ValueError('threads are for targets of kind "cpu"')
        return self

    @model_validator(mode="after")
    def _each_figure_has_its_source(self) -> Self:
        figures = self.figures
        if missing := [figure for figure in figures if not self.sources.get(figure, "").strip()]:
            raise ValueError(f"[sources] lacks {', '.join(missing)}")
        if unknown := sorted(set(self.sources) - set(figures)):
            raise ValueError(f"[sources] has {', '.join(unknown)}, which are not figures of this target")
        return self


def load_target(name_or_path: str | Path) -> Target:
    """Load a target by name or from a user's file; the file's stem is the name.

    Raises:
        TargetError: there is no such target, or its file is not valid.
    """
    path = resources.find("targets", str(name_or_path), TargetError)
    content = _whole(path)
    try:
        return Target.model_validate(content | {"name": path.stem})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise _invalid(path, f"{place}: {reason}" if place else reason, content.get("kind")) from None


def add_target(file: Path, name: str | None = None, *, force: bool = False) -> Path:
    """Copy the target ``file`` to the user's own targets, as ``name`` or by its stem; return the path of the copy.

    Raises:
        TargetError: the file is not a target, its name is not valid, or the user already has a target of that name and
            ``force`` is not set.
        StorageError: the copy cannot be written.
    """
    name = file.stem if name is None else name.removesuffix(".toml")
    if not FIT_NAME.fullmatch(name):
        raise TargetError(f"{name!r} cannot be a target's name.", "Use letters, digits, '-', '_', '+' and '.': --name")
    load_target(file.absolute().as_posix())
    place = resources.own_folder("targets")
    if place is None:
        raise TargetError("This user has no home to keep targets in.", "Set the variable CATRO_CONFIG to a folder.")
    copy = place / f"{name}.toml"
    if copy.exists() and not force:
        raise TargetError(
            f"You have a target {name!r} already: {copy}",
            "Choose another name (--name), or replace it: --force",
        )
    write_text(copy, file.read_text(encoding="utf-8"))
    return copy


def _read(path: Path) -> dict[str, Any]:
    """The content of a file, with ``[sources.gpu]`` as keys ``gpu.x`` of ``[sources]``."""
    try:
        content: dict[str, Any] = read_toml(path)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TargetError(f"{path} cannot be read: {error}.", _example("cpu")) from None
    if "name" in content:
        raise _invalid(path, "name: a target is named after its file", content.get("kind"))
    for table in {"gpu", "sources"} & set(content):
        if not isinstance(content[table], dict):
            raise _invalid(path, f"{table}: Input should be a table", content.get("kind"))
    if "sources" in content:
        content["sources"] = _flat(content["sources"])
    return content


def _flat(sources: dict[str, Any]) -> dict[str, Any]:
    gpu = sources.get("gpu")
    if not isinstance(gpu, dict):
        return dict(sources)
    rest = {figure: source for figure, source in sources.items() if figure != "gpu"}
    return rest | {f"gpu.{figure}": source for figure, source in gpu.items()}


def _whole(path: Path, extending: Sequence[Path] = ()) -> dict[str, Any]:
    """The content of a file, merged over that of the target it extends, which may extend another."""
    content = _read(path)
    if "extends" not in content:
        return content
    base = _base(path, content["extends"])
    if base in extending:
        raise _invalid(path, f"it extends {base.stem!r}, which extends it", content.get("kind"))
    return _merged(_whole(base, (*extending, base)), content)


def _base(path: Path, name: object) -> Path:
    """The file of the target that ``path`` extends, which must be one of the package's."""
    base = resources.folder("targets") / f"{name}.toml"
    if not isinstance(name, str) or base.parent != resources.folder("targets") or not base.is_file():
        shipped = sorted(file.stem for file in resources.folder("targets").glob("*.toml"))
        raise TargetError(
            f"{path} is not a target: it extends {name!r}, which does not come with catro-deploy.",
            f"These can be extended, by name: {', '.join(shipped)}.",
        )
    return base


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """``own`` merged over ``base``. A figure that ``own`` replaces loses its source in ``base``."""
    changed = {*own, *(f"gpu.{figure}" for figure in own.get("gpu", {}))}
    sources = {figure: source for figure, source in base["sources"].items() if figure not in changed}
    inherited = {key: value for key, value in base.items() if key not in NOT_INHERITED}
    merged: dict[str, Any] = inherited | own | {"sources": sources | own.get("sources", {})}
    if "gpu" in merged:
        merged["gpu"] = base.get("gpu", {}) | own.get("gpu", {})
    del merged["extends"]
    return merged


def _invalid(path: Path, reason: str, kind: object) -> TargetError:
    return TargetError(f"{path} is not a target: {reason}.", _example(kind))


def _example(kind: object) -> str:
    name = "jetson-orin" if kind in ("gpu", "jetson") else "x86-cpu"
    return f"A valid one to compare with: {resources.folder('targets') / name}.toml"
