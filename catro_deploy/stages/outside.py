"""What decides the outcome of a stage besides the files it reads: settings, and inputs outside the run folder."""

from pathlib import Path
from typing import Any

from catro_deploy import resources
from catro_deploy.calibration import load_int8_recipe
from catro_deploy.errors import CheckpointError
from catro_deploy.files import file_hash
from catro_deploy.settings import Settings
from catro_deploy.settings.section import TRANSFORMERS
from catro_deploy.stages.image_stamps import SEEN, image_stamps
from catro_deploy.targets import load_target
from catro_deploy.transports.sides import sides_of

__all__ = [
    "building",
    "checkpoint_hash",
    "comparing",
    "counts_latency",
    "deciding",
    "device",
    "exporting",
    "measuring",
    "pruning",
    "quantising",
    "searching",
    "shipping",
]


def deciding(settings: Settings, section: str) -> dict[str, Any]:
    """The part of a section of ``settings`` that decides an outcome, in canonical form."""
    values: dict[str, Any] = getattr(settings, section).model_dump(mode="json")
    if section == "data":
        # The source of the images matters; downloading and the number of processes do not. ``image_stamps`` stands for
        # which files are left out.
        values |= {"root": str(settings.data.root.absolute()), "download": None}
        for name in ("skip_corrupt", "workers"):
            values.pop(name, None)
    if section == "bench":
        del values["runtimes"]  # compared by a separate stage
    if section == "search":
        del values["take"]  # selects one of those that were tried
    if section == "model":
        del values["checkpoint"]  # its content counts, not its path
    if section == "prune":
        values["classes"] = [str(name) for name in values["classes"]]  # in the order of the outputs
    return values


def counts_latency(settings: Settings) -> bool:
    """Whether there is a latency budget, given or searched, or an energy budget."""
    return settings.prune.is_timed


def checkpoint_hash(settings: Settings) -> str:
    """SHA-256 of the trained model's file.

    Raises:
        CheckpointError: it does not exist.
    """
    path = settings.model.checkpoint
    if not path.is_file():
        raise CheckpointError(
            f"There is no checkpoint {path}.",
            "Name your trained model's file: checkpoint in [model] of catro.toml, or --checkpoint. "
            "To train a baseline: catro-deploy train",
        )
    return file_hash(path)


def pruning(settings: Settings) -> dict[str, Any]:
    """What decides a pruning besides its settings: the model's files and, for latency budgets, how latency is found."""
    outside: dict[str, Any] = {"checkpoint": checkpoint_hash(settings)}
    if settings.model.name.startswith(TRANSFORMERS):
        from catro_deploy.models.huggingface import read_architecture  # imports torch

        outside["architecture"] = read_architecture(Path(settings.model.name.removeprefix(TRANSFORMERS)))
    if counts_latency(settings):
        used: dict[str, Any] = {"threads": settings.bench.threads, "batch": settings.bench.batch}
        if settings.quantize.is_named:
            used |= {"precision": settings.quantize.precision}
        if settings.quantize.precision == "int8" and (kept := load_int8_recipe(settings.quantize.recipe).keep):
            used |= {"kept_in_float": kept}
        if settings.bench.soak is not None:
            used["soak"] = settings.bench.soak
        used |= _interface(settings)
        outside |= device(settings) | used | {"profile": _text("calibration/profile", settings.profile.protocol)}
    return outside


def _interface(settings: Settings) -> dict[str, Any]:
    """The interface of the timed networks, where it is not the default."""
    asked = settings.export.model_dump(include={"input", "layout", "output", "top_k"}, exclude_defaults=True)
    return {"interface": asked} if asked else {}


def searching(settings: Settings) -> dict[str, Any]:
    """What decides a search for the latency budget."""
    return pruning(settings) | {"max_drop": settings.verify.max_drop}


def device(settings: Settings) -> dict[str, Any]:
    """The targets and the device of each."""
    first, *others = [
        {"target": side.target.model_dump(mode="json"), "device": side.device} for side in sides_of(settings)
    ]
    return {**first, "also": others} if others else first


def exporting(settings: Settings) -> dict[str, Any]:
    """What decides an export; half precision is calibrated, which needs images."""
    outside = device(settings)
    if load_target(settings.prune.target).precision == "fp16":
        outside |= {
            "data": deciding(settings, "data"),
            "images": image_stamps(settings, SEEN),
            "recipe": _text("calibration/int8", settings.quantize.recipe),
        }
    return outside


def building(settings: Settings) -> dict[str, Any]:
    """What decides which engines are built."""
    batches = [settings.bench.batch, *settings.bench.batches, settings.verify.batch_size]
    return device(settings) | {"batches": batches, "precision": settings.quantize.precision}


def measuring(settings: Settings) -> dict[str, Any]:
    """What decides a measurement."""
    return device(settings) | {"protocol": _text("calibration/latency", settings.bench.protocol)}


def comparing(settings: Settings) -> dict[str, Any]:
    """What decides a comparison of runtimes."""
    return measuring(settings) | {"runtimes": settings.bench.runtimes}


def quantising(settings: Settings) -> dict[str, Any]:
    """What decides a choice of precision."""
    used = {"threads": settings.bench.threads, "batch": settings.bench.batch, "max_drop": settings.verify.max_drop}
    return measuring(settings) | used | {"recipe": _text("calibration/int8", settings.quantize.recipe)}


def shipping(settings: Settings) -> dict[str, Any]:
    """What decides the files to deploy."""
    data = settings.data.model_dump(mode="json", include={"name", "resize", "interpolation"})
    return device(settings) | {"data": data, "batch": settings.bench.batch}


def _text(kind: resources.Kind, name: str) -> str:
    return resources.find(kind, name).read_text(encoding="utf-8")
