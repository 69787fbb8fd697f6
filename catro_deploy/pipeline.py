"""The order of the stages, what each reads and writes, and which of them need not run again.

A stage is skipped if it has ended before with the same settings and the same files. A stage that begins takes
back that it and those that read its files were done: a file of an older attempt never passes for a new one.
"""

import importlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy import resources
from catro_deploy.errors import CheckpointError, MissedError, RunFolderError
from catro_deploy.files import file_hash, text_hash, write_text
from catro_deploy.progress import Progress
from catro_deploy.records import Budget
from catro_deploy.runs import RunFolder, hold
from catro_deploy.settings import Settings, settings_text
from catro_deploy.targets import load_target

__all__ = [
    "STAGES",
    "TRAIN",
    "Stage",
    "check",
    "checkpoint_hash",
    "ensure_checkpoint",
    "run_folder_name",
    "run_stages",
    "train_checkpoint",
]

TRAIN = "catro_deploy.stages.train:train"

Paths = Callable[[RunFolder], tuple[Path, ...]]


@dataclass(frozen=True)
class Stage:
    """One step. ``function`` is ``module:name``, imported only when it runs: most stages import torch.

    ``sections`` are the settings that decide its outcome, ``reads`` files of earlier stages, ``outside`` what
    else decides it. ``may_miss``: it raises MissedError after its files are written, and later stages still
    make sense.
    """

    name: str
    function: str
    sections: tuple[str, ...]
    reads: Paths
    writes: Paths
    outside: Callable[[Settings], Mapping[str, Any]] = lambda settings: {}
    may_miss: bool = False

    def inputs(self, settings: Settings, run: RunFolder) -> dict[str, Any]:
        """All that decides the outcome: equal inputs need no second run."""
        return {
            "settings": {section: _deciding(settings, section) for section in self.sections},
            "files": {path.name: file_hash(path) for path in self.reads(run)},
            "outside": dict(self.outside(settings)),
        }


def checkpoint_hash(settings: Settings) -> str:
    """SHA-256 of the trained model's file.

    Raises:
        CheckpointError: it is not there.
    """
    path = settings.model.checkpoint
    if not path.is_file():
        raise CheckpointError(
            f"There is no checkpoint {path}.",
            "Name your trained model's file: checkpoint in [model] of catro.toml, or --checkpoint. "
            "To train a baseline: catro-deploy train",
        )
    return file_hash(path)


def _device(settings: Settings) -> dict[str, Any]:
    return {"target": load_target(settings.prune.target).model_dump(mode="json")}


def _measuring(settings: Settings) -> dict[str, Any]:
    protocol = resources.find("calibration/latency", settings.bench.protocol)
    return _device(settings) | {"protocol": protocol.read_text(encoding="utf-8")}


def check(settings: Settings) -> None:
    """Find out in a moment what would otherwise fail after minutes.

    Raises:
        UsageError: the target, the budget or the measuring protocol cannot be read.
    """
    from catro_deploy.stages.bench import load_protocol

    Budget.parse(settings.prune.budget)
    load_target(settings.prune.target)
    load_protocol(settings.bench.protocol)


STAGES: tuple[Stage, ...] = (
    Stage(
        "prune",
        "catro_deploy.stages.prune:prune",
        ("model", "data", "prune"),
        reads=lambda run: (),
        writes=lambda run: (run.plan, run.original_weights, run.pruned_weights),
        outside=lambda settings: {"checkpoint": checkpoint_hash(settings)},
    ),
    Stage(
        "finetune",
        "catro_deploy.stages.finetune:finetune",
        ("data", "finetune"),
        reads=lambda run: (run.plan, run.original_weights, run.pruned_weights),
        writes=lambda run: (run.weights, run.finetune),
    ),
    Stage(
        "export",
        "catro_deploy.stages.export:export",
        ("export",),
        reads=lambda run: (run.plan, run.original_weights, run.weights),
        writes=lambda run: (run.original_onnx, run.pruned_onnx),
        outside=_device,
    ),
    Stage(
        "verify",
        "catro_deploy.stages.verify:verify",
        ("data", "verify"),
        reads=lambda run: (run.plan, run.original_weights, run.weights, run.original_onnx, run.pruned_onnx),
        writes=lambda run: (run.verify,),
        outside=_device,
        may_miss=True,
    ),
    Stage(
        "bench",
        "catro_deploy.stages.bench:bench",
        ("bench",),
        reads=lambda run: (run.plan, run.original_onnx, run.pruned_onnx),
        writes=lambda run: (run.bench,),
        outside=_measuring,
        may_miss=True,
    ),
    Stage(
        "report",
        "catro_deploy.stages.report:report",
        (),
        reads=lambda run: (run.plan, run.finetune, run.verify, run.bench),
        writes=lambda run: (run.report("json"), run.report("md"), run.report("html")),
    ),
)


def run_stages(
    names: Sequence[str],
    settings: Settings,
    run: RunFolder,
    progress: Progress,
    *,
    force: bool = False,
    table: Sequence[Stage] = STAGES,
) -> MissedError | None:
    """Run the stages ``names`` of ``table`` in its order, each unless it is done; ``force`` runs them anyway.

    Returns:
        What was missed of what was asked, for the caller to raise once the results are shown.

    Raises:
        RunFolderError: another process works in the folder, or an earlier stage has not been run.
        CatroError: whatever a stage raises.
    """
    missed: list[MissedError] = []
    with run.lock():
        text = settings_text(settings)
        if not run.settings.is_file() or run.settings.read_text(encoding="utf-8") != text:
            write_text(run.settings, text)
        for stage in table:
            if stage.name in names:
                missed += _run_stage(stage, settings, run, progress, force, table)
    if not missed:
        return None
    return MissedError("\n".join(m.problem for m in missed), "\n".join(m.hint for m in missed))


def _run_stage(
    stage: Stage, settings: Settings, run: RunFolder, progress: Progress, force: bool, table: Sequence[Stage]
) -> list[MissedError]:
    _require_upstream(stage, run, table)
    inputs = stage.inputs(settings, run)
    if not force and run.is_done(stage.name, inputs):
        progress.note(f"{stage.name}: unchanged, skipped")
        return run.missed(stage.name)
    run.take_back(_with_downstream(stage, run, table))
    started = time.monotonic()
    missed: list[MissedError] = []
    try:
        _resolve(stage.function)(settings, run, progress)
    except MissedError as error:
        if not stage.may_miss:
            raise
        missed = [error]
    seconds = time.monotonic() - started
    run.mark_done(stage.name, inputs, stage.writes(run), seconds, missed)
    progress.note(f"{stage.name}: done in {seconds:.1f} s" + (", missed what was asked" if missed else ""))
    return missed


def _require_upstream(stage: Stage, run: RunFolder, table: Sequence[Stage]) -> None:
    needed = set(stage.reads(run))
    missing: list[str] = []
    for earlier in reversed(table):
        if needed & set(earlier.writes(run)):
            needed |= set(earlier.reads(run))
            if not run.is_intact(earlier.name):
                missing.insert(0, earlier.name)
    if missing:
        raise RunFolderError(
            f"{stage.name} needs the results of {', '.join(missing)} in {run.path}: not made yet, or changed or gone "
            "since.",
            f"Go on with: catro-deploy {missing[0]} --run {run.path}",
        )


def _with_downstream(stage: Stage, run: RunFolder, table: Sequence[Stage]) -> list[str]:
    names, changed = [stage.name], set(stage.writes(run))
    for later in table:
        if later.name != stage.name and changed & set(later.reads(run)):
            names.append(later.name)
            changed |= set(later.writes(run))
    return names


def _resolve(function: str) -> Callable[..., object]:
    module, name = function.split(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def _deciding(settings: Settings, section: str) -> dict[str, Any]:
    values: dict[str, Any] = getattr(settings, section).model_dump(mode="json")
    if section == "data":
        # Where the images come from matters, how they got there does not.
        values |= {"root": str(settings.data.root.absolute()), "download": None}
    if section == "model":
        del values["checkpoint"]  # its content counts, wherever it lies
    if section == "prune":
        values["budget"] = str(Budget.parse(values["budget"]))
        values["classes"] = sorted(map(str, values["classes"]))
    return values


def run_folder_name(settings: Settings) -> str:
    """A folder's name that tells prunings apart: ``x86-cpu-speed_limits-50pct-flops-1a2b3c4d``.

    Raises:
        BudgetError: the budget cannot be read.
        CheckpointError: the trained model is not there.
    """
    deciding = {section: _deciding(settings, section) for section in ("model", "data", "prune")}
    classes = "+".join(deciding["prune"]["classes"]) or "all"
    budget = deciding["prune"]["budget"].replace("%", "pct-")
    digest = text_hash(json.dumps([deciding, checkpoint_hash(settings)], sort_keys=True))[:8]
    words = (Path(settings.prune.target).stem, classes[:40], budget, digest)
    return "-".join(re.sub(r"[^\w.+-]+", "_", word) for word in words)


def ensure_checkpoint(settings: Settings, progress: Progress) -> None:
    """Train the baseline if it is not there and ``[train]`` says how."""
    if settings.train is not None and not settings.model.checkpoint.is_file():
        train_checkpoint(settings, progress)


def train_checkpoint(settings: Settings, progress: Progress) -> object:
    """Train the baseline that ``[train]`` describes into ``[model] checkpoint``, alone at that file."""
    checkpoint = settings.model.checkpoint
    with hold(checkpoint.with_name(f".{checkpoint.name}.lock"), f"on {checkpoint}"):
        return _resolve(TRAIN)(settings, progress)
