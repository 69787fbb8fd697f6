"""``doctor``: what is installed, what works, and commands to install what is missing."""

import importlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from catro_deploy import __version__
from catro_deploy.agent.results import Finding
from catro_deploy.cli.console import print_json, print_result
from catro_deploy.cli.options import Config, Json, examples
from catro_deploy.cli.work import CONFIG, own_settings
from catro_deploy.errors import CatroError, DeviceError, FaultError, RuntimeMissingError
from catro_deploy.units import counted

__all__ = ["Finding", "app", "findings", "findings_on"]

app = typer.Typer()

GIB = 2**30
LEAST_FREE_GIB = 2.0
PACKAGES = (
    *("torch", "torchvision", "onnx", "onnxscript", "onnxruntime", "onnxslim", "numpy", "pillow", "pydantic"),
    *("rich", "safetensors", "typer"),
)
STYLES = {"works": "green", "missing": "yellow", "broken": "bold red"}


@app.command(epilog=examples("doctor", "doctor --json", "doctor --device press-3"))
def doctor(
    config: Config = None,
    device: Annotated[
        str | None, typer.Option(help="One of your devices, instead of this machine.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Check what is installed, and try what should work. Exit code 1 if something needed does not work."""
    found = list(findings(config) if device is None else findings_on(device))
    if json:
        print_json({"version": __version__, "findings": [asdict(finding) for finding in found]})
    else:
        _show(found)
    if broken := [finding.name for finding in found if finding.needed and finding.state != "works"]:
        raise FaultError(f"Needed and not working: {', '.join(broken)}.", "See the advice for each of them.")


def _show(found: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for finding in found:
        detail = finding.detail + (f"\nTo do: {finding.remedy}" if finding.remedy else "")
        table.add_row(Text(finding.state, STYLES[finding.state]), Text(finding.name), Text(detail))
    print_result(table)


def findings_on(name: str) -> Iterator[Finding]:
    """The findings of the agent on the device ``name``, or why it cannot be reached."""
    from catro_deploy.agent.jobs import DoctorJob
    from catro_deploy.targets import load_target
    from catro_deploy.transports import run_job
    from catro_deploy.transports.registry import find_device

    device = find_device(name)
    try:
        result = run_job(name, DoctorJob(load_target(device.target).runtime), Path(), ())
        yield Finding("ssh", "works", device.ssh, True)
        for one in result.findings:
            yield replace(one, remedy=device.fitted(one.remedy))
    except DeviceError as error:
        yield Finding("ssh", "broken", error.problem, True, error.hint)


def findings(config: Path | None) -> Iterator[Finding]:
    """All checks of the doctor; one that raises is a finding, not an internal error."""
    yield Finding("python", "works", f"{platform.python_version()} on {platform.platform()}", True)
    yield from map(_package, PACKAGES)
    yield _try(
        "ONNX Runtime on the CPU",
        _onnxruntime,
        needed=True,
        remedy="pip install --force-reinstall onnxruntime",
    )
    yield _telemetry()
    yield _integers()
    yield _cuda()
    yield _tensorrt()
    yield _openvino()
    yield _compiler()
    yield _disk()
    yield _cache()
    yield _memory()
    yield _data(config)


def _package(name: str) -> Finding:
    from importlib import metadata  # slow to import, and --help of every command imports this module

    try:
        return Finding(name, "works", metadata.version(name), True)
    except metadata.PackageNotFoundError:
        return Finding(name, "missing", "not installed", True, f"pip install {name}")


def _try(name: str, check: Callable[[], str], *, needed: bool, remedy: str) -> Finding:
    try:
        return Finding(name, "works", check(), needed)
    except Exception as error:  # any error of a library is a finding
        reason = (str(error).strip().splitlines() or [""])[0]
        return Finding(name, "broken", f"{type(error).__name__}: {reason}", needed, remedy)


def _onnxruntime() -> str:
    """Make a model that adds a number to itself, and run it."""
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": np.array([2.0], np.float32)})
    if answer.tolist() != [4.0]:
        raise FaultError(f"2 + 2 gave {answer.tolist()}.")
    return f"{onnxruntime.__version__}; providers: {', '.join(onnxruntime.get_available_providers())}"


def _telemetry() -> Finding:
    from catro_deploy.agent.doctor import telemetry

    return telemetry()


def _integers() -> Finding:
    from catro_deploy.agent.facts import device_facts
    from catro_deploy.precision.int8 import WIDE_SUMS, seven_bits

    sets = device_facts().instruction_sets or ()
    if seven_bits(sets):
        remedy = "optional; int8 runs here with weights of seven bits, and gains less"
        return Finding("int8", "missing", f"no {', '.join(sorted(WIDE_SUMS))} in this processor", False, remedy)
    wide = ", ".join(name for name in sets if name in WIDE_SUMS)
    return Finding("int8", "works", wide or "not an x86 processor: not known", False)


def _cuda() -> Finding:
    def compute() -> str:
        import torch

        total = torch.ones(8, 8, device="cuda").sum().item()
        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, sum of 64 ones: {total:g}"

    try:
        import torch

        available = torch.cuda.is_available()
    except Exception as error:  # an installation of torch that cannot even be imported
        return Finding(
            "torch", "broken", f"{type(error).__name__}: {error}", True, "pip install --force-reinstall torch"
        )
    if not available:
        remedy = "optional; with an NVIDIA GPU: install its driver, and check it with nvidia-smi"
        return Finding("CUDA", "missing", "no GPU that torch can use; training runs on the CPU", False, remedy)
    return _try("CUDA", compute, needed=False, remedy="check the driver with nvidia-smi")


def _tensorrt() -> Finding:
    if platform.machine() == "aarch64":
        remedy = "optional; on a Jetson: sudo apt-get install python3-libnvinfer"
    else:
        remedy = "optional; with an NVIDIA GPU: pip install tensorrt"
    try:
        version = importlib.import_module("tensorrt").__version__
    except ImportError:
        return Finding("TensorRT", "missing", "not installed", False, remedy)
    return Finding("TensorRT", "works", str(version), False)


def _openvino() -> Finding:
    from catro_deploy.runtimes.ov_library import core
    from catro_deploy.runtimes.trial import try_runtime

    try:
        version, devices = try_runtime("openvino"), ", ".join(core().available_devices)
        return Finding("OpenVINO", "works", f"{version}; devices: {devices}", False)
    except RuntimeMissingError as error:
        return Finding("OpenVINO", "missing", error.problem, False, 'optional: pip install "catro-deploy[openvino]"')
    except CatroError as error:
        return Finding("OpenVINO", "broken", error.problem, False, error.hint)


def _compiler() -> Finding:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return Finding("C++ compiler", "works", path, False)
    remedy = "optional, for --compile: sudo apt-get install g++"
    return Finding("C++ compiler", "missing", "none found", False, remedy)


def _disk() -> Finding:
    folder = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free / GIB
    except OSError as error:
        remedy = "work in another folder, or name one with --run"
        return Finding("disk", "broken", f"{folder} cannot be written: {error.strerror}", False, remedy)
    enough = free >= LEAST_FREE_GIB
    remedy = "" if enough else f"free some space: a run may need {LEAST_FREE_GIB:g} GiB"
    return Finding("disk", "works" if enough else "broken", f"{free:.1f} GiB free in {folder}", False, remedy)


def _cache() -> Finding:
    """Whether measurements of latency can be kept."""
    from catro_deploy.resources import cache_folder
    from catro_deploy.transports import require_cache

    try:
        require_cache()
    except CatroError as error:
        return Finding("cache", "broken", error.problem, True, error.hint)
    return Finding("cache", "works", str(cache_folder()), True)


def _memory() -> Finding:
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    except (ValueError, OSError):
        return Finding("memory", "missing", "this system does not report its memory", False)
    cores = counted(os.cpu_count() or 1, "core")
    return Finding("memory", "works", f"{total:.1f} GiB, {free:.1f} GiB of it unused; {cores}", False)


def _data(config: Path | None) -> Finding:
    try:
        data = own_settings(config, {}).data
    except CatroError as error:
        there = (config or CONFIG).is_file()
        return Finding("settings", "broken" if there else "missing", error.problem, False, error.hint)
    if data.name == "signs":
        return Finding("data", "works", "signs are drawn, no folder needed", False)
    if data.root.is_dir():
        return Finding("data", "works", f"{data.name} in {data.root}", False)
    remedy = (
        "catro-deploy prune --download" if data.name == "gtsrb" else "set root in [data] of catro.toml, or --data-root"
    )
    return Finding("data", "missing", f"there is no folder {data.root} for {data.name}", False, remedy)
