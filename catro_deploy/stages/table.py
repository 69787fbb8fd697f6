"""The stages in their order: what each reads and writes, and all that decides its outcome.

No stage is imported here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy import resources
from catro_deploy.errors import CheckpointError
from catro_deploy.files import file_hash
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.settings.section import TRANSFORMERS
from catro_deploy.targets import load_target
from catro_deploy.transports.sides import sides_of

__all__ = [
    "BUILD",
    "PRUNE",
    "QUANTIZE",
    "RUNTIMES",
    "SEARCH",
    "SHIP",
    "STAGES",
    "Paths",
    "Stage",
    "checkpoint_hash",
    "counts_latency",
    "deciding",
]

SEARCH, PRUNE, QUANTIZE, BUILD, RUNTIMES, SHIP = "search", "prune", "quantize", "build", "runtimes", "ship"

Paths = Callable[[RunFolder], tuple[Path, ...]]


@dataclass(frozen=True)
class Stage:
    """One step. ``function`` is ``module:name``, imported only when it runs: most stages import torch.

    ``sections`` are the settings that decide its outcome, ``reads`` files of earlier stages, ``outside`` what
    else decides it. ``keeps`` are folders of partial results that it reuses unless forced not to.
    ``may_miss``: it raises MissedError after its files are written, and later stages still make sense.
    ``on_device``: it runs networks on the target, and is left out where that cannot be reached.
    """

    name: str
    function: str
    sections: tuple[str, ...]
    reads: Paths
    writes: Paths
    outside: Callable[[Settings], Mapping[str, Any]] = lambda settings: {}
    keeps: Paths = lambda run: ()
    may_miss: bool = False
    on_device: bool = False

    def inputs(self, settings: Settings, run: RunFolder) -> dict[str, Any]:
        """All that decides the outcome: equal inputs need no second run."""
        return {
            "settings": {section: deciding(settings, section) for section in self.sections},
            "files": {path.name: file_hash(path) for path in self.reads(run)},
            "outside": dict(self.outside(settings)),
        }


def deciding(settings: Settings, section: str) -> dict[str, Any]:
    """The part of a section of ``settings`` that decides an outcome, in canonical form."""
    values: dict[str, Any] = getattr(settings, section).model_dump(mode="json")
    if section == "data":
        # The source of the images matters, downloading does not.
        values |= {"root": str(settings.data.root.absolute()), "download": None}
    if section == "bench":
        del values["runtimes"]  # which compares them, in a stage of its own
    if section == "model":
        del values["checkpoint"]  # its content counts, not its path
    if section == "prune":
        values["classes"] = [str(name) for name in values["classes"]]  # in the order of the outputs
    return values


def counts_latency(settings: Settings) -> bool:
    """Whether a budget is one of latency, given or searched, or of energy."""
    return settings.prune.is_timed


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


def _pruning(settings: Settings) -> dict[str, Any]:
    """What decides a pruning besides its settings: the model's files and, for latency budgets, how latency is found."""
    outside: dict[str, Any] = {"checkpoint": checkpoint_hash(settings)}
    if settings.model.name.startswith(TRANSFORMERS):
        from catro_deploy.models.huggingface import read_architecture  # imports torch

        outside["architecture"] = read_architecture(Path(settings.model.name.removeprefix(TRANSFORMERS)))
    if counts_latency(settings):
        used: dict[str, Any] = {"threads": settings.bench.threads, "batch": settings.bench.batch}
        if settings.quantize.is_named:
            used |= {"precision": settings.quantize.precision}
        if settings.bench.soak is not None:
            used["soak"] = settings.bench.soak
        used |= _interface(settings)
        outside |= _device(settings) | used | {"profile": _text("calibration/profile", settings.profile.protocol)}
    return outside


def _interface(settings: Settings) -> dict[str, Any]:
    """The interface of the timed networks, where it is not the default."""
    asked = settings.export.model_dump(include={"input", "layout", "output", "top_k"}, exclude_defaults=True)
    return {"interface": asked} if asked else {}


def _searching(settings: Settings) -> dict[str, Any]:
    return _pruning(settings) | {"max_drop": settings.verify.max_drop}


def _device(settings: Settings) -> dict[str, Any]:
    first, *others = [
        {"target": side.target.model_dump(mode="json"), "device": side.device} for side in sides_of(settings)
    ]
    return {**first, "also": others} if others else first


def _exporting(settings: Settings) -> dict[str, Any]:
    """Half precision is calibrated, which needs images."""
    outside = _device(settings)
    if load_target(settings.prune.target).precision == "fp16":
        outside |= {"data": deciding(settings, "data"), "recipe": _text("calibration/int8", settings.quantize.recipe)}
    return outside


def _building(settings: Settings) -> dict[str, Any]:
    batches = [settings.bench.batch, *settings.bench.batches, settings.verify.batch_size]
    return _device(settings) | {"batches": batches, "precision": settings.quantize.precision}


def _measuring(settings: Settings) -> dict[str, Any]:
    return _device(settings) | {"protocol": _text("calibration/latency", settings.bench.protocol)}


def _comparing(settings: Settings) -> dict[str, Any]:
    return _measuring(settings) | {"runtimes": settings.bench.runtimes}


def _quantising(settings: Settings) -> dict[str, Any]:
    used = {"threads": settings.bench.threads, "batch": settings.bench.batch, "max_drop": settings.verify.max_drop}
    return _measuring(settings) | used | {"recipe": _text("calibration/int8", settings.quantize.recipe)}


def _shipping(settings: Settings) -> dict[str, Any]:
    data = settings.data.model_dump(mode="json", include={"name", "resize", "interpolation"})
    return _device(settings) | {"data": data, "batch": settings.bench.batch}


def _text(kind: resources.Kind, name: str) -> str:
    return resources.find(kind, name).read_text(encoding="utf-8")


def _exported(run: RunFolder) -> tuple[Path, ...]:
    """Both networks, and in half precision if the target runs so; as IR if it takes that."""
    halves = (run.onnx("original", "fp16"), run.onnx("pruned", "fp16"))
    return _with_ir((run.original_onnx, run.pruned_onnx, *(halves if halves[0].is_file() else ())))


def _with_ir(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """``files``, and beside each the graph and weights that OpenVINO reads, if they are there."""
    made = [file.with_suffix(end) for file in files for end in (".xml", ".bin")]
    return (*files, *(path for path in made if path.is_file()))


def _quantised(run: RunFolder) -> tuple[Path, ...]:
    """The files of ``quantize``: its decision, and the networks that it made."""
    made = [run.calibration, *_with_ir((run.onnx("pruned", "int8"), run.onnx("pruned", "fp16")))]
    return (run.quantize, *(path for path in made if path.is_file() and path not in _exported(run)))


def _shipped(run: RunFolder) -> tuple[Path, ...]:
    """All of ``ship/``: the record and the network."""
    beside = [path for end in ("*.onnx", "*.xml", "*.bin", "*.py") for path in run.shipped.parent.glob(end)]
    return (run.shipped, *(path for path in beside if not path.name.startswith(".")))


def _carried(run: RunFolder) -> tuple[Path, ...]:
    """Results from a device that cannot be reached, if there are any."""
    return (run.carried,) if run.carried.is_file() else ()


STAGES: tuple[Stage, ...] = (
    Stage(
        SEARCH,
        "catro_deploy.stages.search:search",
        ("model", "data", "prune", "finetune"),
        reads=lambda run: (),
        writes=lambda run: (run.search,),
        outside=_searching,
        keeps=lambda run: (run.searched,),
        on_device=True,
    ),
    Stage(
        PRUNE,
        "catro_deploy.stages.prune:prune",
        ("model", "data", "prune"),
        reads=lambda run: (run.search,),
        writes=lambda run: (run.plan, run.original_weights, run.pruned_weights),
        outside=_pruning,
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
        writes=_exported,
        outside=_exporting,
    ),
    Stage(
        QUANTIZE,
        "catro_deploy.stages.quantize:quantize",
        ("data", "finetune", "build", "quantize"),
        reads=lambda run: (run.plan, run.original_weights, run.weights, *_exported(run)),
        writes=_quantised,
        outside=_quantising,
        may_miss=True,
        on_device=True,
    ),
    Stage(
        BUILD,
        "catro_deploy.stages.build:build",
        ("build",),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run), *_carried(run)),
        writes=lambda run: (run.build,),
        outside=_building,
        on_device=True,
    ),
    Stage(
        "verify",
        "catro_deploy.stages.verify:verify",
        ("data", "build", "verify"),
        reads=lambda run: (
            run.plan,
            run.original_weights,
            run.pruned_weights,
            run.weights,
            *_exported(run),
            *_quantised(run),
            *_carried(run),
        ),
        writes=lambda run: (run.verify,),
        outside=_device,
        may_miss=True,
        on_device=True,
    ),
    Stage(
        "bench",
        "catro_deploy.stages.bench:bench",
        ("build", "bench"),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run), *_carried(run)),
        writes=lambda run: (run.bench,),
        outside=_measuring,
        may_miss=True,
        on_device=True,
    ),
    Stage(
        RUNTIMES,
        "catro_deploy.stages.runtimes:runtimes",
        ("data", "bench"),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run)),
        writes=lambda run: (run.runtimes,),
        outside=_comparing,
        on_device=True,
    ),
    Stage(
        SHIP,
        "catro_deploy.stages.ship:ship",
        (),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run)),
        writes=_shipped,
        outside=_shipping,
        may_miss=True,
    ),
    Stage(
        "report",
        "catro_deploy.stages.report:report",
        (),
        reads=lambda run: (
            run.search,
            run.plan,
            run.finetune,
            run.quantize,
            run.build,
            run.verify,
            run.bench,
            run.runtimes,
            run.shipped,
        ),
        writes=lambda run: (run.report("json"), run.report("md"), run.report("html")),
        outside=lambda settings: {"max_drop": settings.verify.max_drop},
    ),
)
