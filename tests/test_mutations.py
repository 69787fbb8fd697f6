"""Every kind of input file, damaged in hundreds of ways: a message, the exit code of a user error, and nothing lost.

Each case runs a real command in this process on a copy of real files; a command that takes too long counts as a hang.
"""

import json
import resource
import shutil
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from catro_deploy.agent.carried import do
from catro_deploy.files import file_hash
from catro_deploy.latency.profile import save_profile
from catro_deploy.resources import folder
from catro_deploy.training.loop import Training
from tests.latency.profile.quick import made_profile
from tests.mutations import Mutation, of_bytes, of_json, of_lines, of_metadata, of_place, of_toml
from tests.tiny import TinyNet, command

HANGS_AFTER_S = 30
MOST_CPU_S = 120
FINE = (0, 2, 3)
"""Done, refused, or done with a result that misses a requirement."""
STATE = "finetune.resume.safetensors"
SKIPPED = (".lock", "stages.json")
REGISTRY = '[box]\nssh = "user@host"\ntarget = "x86-cpu"\npython = "python3"\nfolder = ".cache/catro-deploy"\n'


class Hang(BaseException):
    """Raised on a timeout; no command catches it."""


@contextmanager
def guarded() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANGS_AFTER_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def cpu_s() -> float:
    """CPU time of this process and of finished child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.fixture(scope="module", autouse=True)
def _within_reason() -> Iterator[None]:
    """Limit the CPU time of all cases together: a slow command that does not time out would go unnoticed."""
    began = cpu_s()
    yield
    assert cpu_s() - began < MOST_CPU_S


@pytest.fixture(scope="module")
def whole(tiny_template, tiny_finished, tmp_path_factory) -> Path:
    """A working folder with a file of every kind, for copying."""
    work = tmp_path_factory.mktemp("whole") / "work"
    shutil.copytree(tiny_template, work)
    thin_out(work / "data")
    shutil.copytree(tiny_finished, work / "run")
    torch.save(TinyNet(3).state_dict(), work / "tiny.pth")
    (work / "box.toml").write_text((folder("targets") / "x86-cpu.toml").read_text())
    (work / "config").mkdir()
    (work / "config" / "devices.toml").write_text(REGISTRY)
    (work / "config" / "targets").mkdir()
    assert command("bundle", "--run", "run", cwd=work).exit_code == 0
    with tarfile.open(work / "run" / "bundle.tar") as tar:
        tar.extractall(work, filter="data")
    (work / "run" / "bundle.tar").unlink()
    assert do(work / "catro-bundle") == 0
    shutil.copy(work / "catro-bundle" / "result.json", work / "result.json")
    (work / "catro-bundle" / "result.json").unlink()
    profile = made_profile(fingerprint={"precision": "fp32", "threads": 1, "batch": 1})
    save_profile(profile, work / "cache" / "latency" / "x86-cpu-1")
    leave_unfinished(work, tmp_path_factory.mktemp("unfinished") / "work")
    return work


def thin_out(data: Path) -> None:
    """Keep five images of each class for training and two for testing: every case copies and compares all files."""
    for split, kept in (("train", 5), ("test", 2)):
        for images in (data / split).iterdir():
            for image in sorted(images.iterdir())[kept:]:
                image.unlink()


def leave_unfinished(work: Path, other: Path) -> None:
    """Add the state of a fine-tuning interrupted just before it finished, made in the copy ``other``, to the run."""
    shutil.copytree(work, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "finish", stopped)
        command("finetune", "--run", "run", "--force", cwd=other)
    shutil.copy(other / "run" / STATE, work / "run" / STATE)


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def copy_of(whole, tmp_path, monkeypatch) -> Callable[[], Path]:
    """A function that makes a new copy for a case and changes into it."""

    def made() -> Path:
        work = tmp_path / "work"
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(whole, work)
        monkeypatch.chdir(work)
        monkeypatch.setenv("CATRO_CONFIG", str(work / "config"))
        monkeypatch.setenv("CATRO_CACHE", str(work / "cache"))
        return work

    return made


@dataclass(frozen=True)
class Kind:
    """A file to damage, and the commands that read it; the cases use them in turn."""

    file: str
    mutations: list[Mutation]
    commands: tuple[str, ...]


def taken(seed: int, *sources: Callable[[np.random.Generator, int], Iterator[Mutation]], count: int) -> list[Mutation]:
    """All mutations of ``of_place``, and those of each of ``sources`` with ``count``."""
    generators = np.random.default_rng(seed).spawn(len(sources))
    return [*of_place(), *chain(*(source(one, count) for source, one in zip(sources, generators, strict=True)))]


RECORD = ("report --run run --force", "runs show run", "ship --run run --force")
FINETUNE = ("finetune --run run --force",)
PROFILES = ("targets show x86-cpu",)
KINDS = {
    "settings": Kind("catro.toml", taken(1, of_toml, count=16), ("prune --run new", "report --run run")),
    "settings of a run": Kind("run/run.toml", taken(2, of_toml, of_bytes, count=8), RECORD),
    "target": Kind("box.toml", taken(3, of_toml, of_bytes, count=8), ("targets show ./box.toml",)),
    "protocol": Kind("moment.toml", taken(4, of_toml, count=6), ("bench --run run --force",)),
    "stages": Kind("run/stages.json", taken(5, of_json, of_bytes, count=8), RECORD),
    "plan": Kind("run/plan.json", taken(6, of_json, of_bytes, count=14), (*RECORD, "export --run run --force")),
    "verify": Kind("run/verify.json", taken(7, of_json, of_bytes, count=8), RECORD),
    "bench": Kind("run/bench.json", taken(8, of_json, of_bytes, count=8), RECORD),
    "finetune": Kind("run/finetune.json", taken(9, of_json, of_bytes, count=8), RECORD),
    "shipped": Kind("run/ship/model.json", taken(10, of_json, of_bytes, count=6), ("runs show run", "ship --run run")),
    "report": Kind("run/report.json", taken(11, of_json, count=10), ("runs show run", "runs list")),
    "weights": Kind("tiny.safetensors", taken(12, of_bytes, count=6), ("prune --run new",)),
    "torch weights": Kind("tiny.pth", taken(13, of_bytes, count=6), ("prune --run new --checkpoint tiny.pth",)),
    "weights of a run": Kind("run/weights.safetensors", taken(14, of_bytes, count=4), ("export --run run --force",)),
    "ONNX": Kind("run/pruned.onnx", taken(15, of_bytes, count=3), ("bench --run run --force", "ship --run run")),
    "image": Kind("data/train/down/00.png", taken(16, of_bytes, count=4), ("prune --run new",)),
    "results": Kind("result.json", taken(17, of_lines, of_bytes, count=5), ("import result.json --run run",)),
    "lock": Kind("run/.lock", taken(18, count=0), RECORD),
    "devices": Kind("config/devices.toml", taken(19, of_toml, of_bytes, count=8), ("device list",)),
    "latency profile": Kind("cache/latency/x86-cpu-1/profile.json", taken(22, of_json, of_bytes, count=6), PROFILES),
    "cells of a profile": Kind("cache/latency/x86-cpu-1/cells.csv", taken(23, of_bytes, count=4), PROFILES),
    "unfinished training": Kind(
        f"run/{STATE}", taken(24, of_metadata, of_bytes, count=8), ("finetune --run run --force",)
    ),
}


def snapshot(work: Path, damaged: Path) -> dict[str, str]:
    """The hashes of all files except the damaged one, locks, and the list of stages, which loses a forced stage."""
    files = [path for path in work.rglob("*") if path.is_file() and path != damaged and path.name not in SKIPPED]
    return {str(path.relative_to(work)): file_hash(path) for path in files}


def trusted(work: Path, damaged: Path) -> None:
    """Record the hash of the damaged file in the run's stages.json, so that its content is read."""
    stages, name = work / "run" / "stages.json", str(damaged.relative_to(work / "run"))
    content = json.loads(stages.read_text())
    for stage in content["stages"].values():
        if name in stage["outputs"] and damaged.is_file():
            stage["outputs"][name] = file_hash(damaged)
    stages.write_text(json.dumps(content))


def fault_of(work: Path, kind: Kind, number: int) -> str:
    """What is wrong with a command's result on a damaged file; empty if nothing is."""
    name, mutate = kind.mutations[number]
    damaged, line = work / kind.file, kind.commands[number % len(kind.commands)]
    mutate(damaged)
    if kind.file.startswith("run/") and damaged.name != "stages.json" and number % 2 and not damaged.is_symlink():
        trusted(work, damaged)
    before = snapshot(work, damaged)
    where = f"{kind.file}, {name}: {line}"
    try:
        with guarded():
            result = command(*line.split())
    except Hang:
        return f"{where}: hangs"
    if result.exit_code not in FINE or "Traceback" in result.output or "internal error" in result.output:
        return f"{where}: {result.exit_code} {result.output[-600:]}"
    if result.exit_code == 2 and not {*before.items()} <= {*snapshot(work, damaged).items()}:
        return f"{where}: {result.output[-200:]}: lost {before.items() - snapshot(work, damaged).items()}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_a_user_error(kind, copy_of):
    faults = [fault_of(copy_of(), KINDS[kind], number) for number in range(len(KINDS[kind].mutations))]
    assert [fault for fault in faults if fault] == []


@pytest.mark.slow
def test_the_same_files_are_right_when_whole(copy_of):
    copy_of()
    shown = command(*PROFILES[0].split())
    assert (shown.exit_code, "Measured 2026-01-31" in shown.output) == (0, True)
    trained = command(*FINETUNE[0].split())
    assert (trained.exit_code, "resuming after epoch 2 of 2" in trained.output) == (0, True)


BUNDLE = {
    "jobs.json": taken(20, of_json, of_bytes, count=6),
    "files/pruned.onnx": taken(21, of_bytes, count=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("file", BUNDLE)
def test_a_damaged_bundle_is_not_run(file, copy_of, capsys):
    for name, mutate in BUNDLE[file]:
        there = copy_of() / "catro-bundle"
        original = (there / file).read_bytes()
        mutate(there / file)
        if (there / file).is_file() and (there / file).read_bytes() == original:
            continue
        with guarded():
            assert do(there) == 2, f"{name}: {capsys.readouterr().out}"
        assert not (there / "result.json").exists()


def test_there_are_enough_cases():
    assert sum(len(kind.mutations) for kind in KINDS.values()) + sum(map(len, BUNDLE.values())) >= 500
