"""``bench``: latency of the original and the pruned ONNX file, measured in turns by the device's agent."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic import ValidationError as PydanticError

from catro_deploy import resources
from catro_deploy.device.local import run_job
from catro_deploy.errors import FaultError, MissedError, SettingsError
from catro_deploy.files import file_hash, write_json
from catro_deploy.progress import Progress
from catro_deploy.runs import RunFolder
from catro_deploy.settings import BenchSettings, Settings
from catro_deploy.targets import Target, load_target

__all__ = ["LatencyProtocol", "bench", "load_protocol"]

# A bootstrap over ten turns or fewer says little.
LEAST_TURNS = 10
# For loading both models, one last turn of very slow ones, and the bootstrap.
GRACE_S = 600


class LatencyProtocol(BaseModel):
    """How latency is measured: a file of calibration/latency, whose comments give the reasons."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    warmup_s: NonNegativeFloat
    seconds: PositiveFloat
    min_samples: PositiveInt
    limit_s: PositiveFloat
    block: PositiveInt
    bootstrap_resamples: PositiveInt
    seed: NonNegativeInt

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.limit_s < self.seconds:
            raise ValueError(f"limit_s is {self.limit_s:g}, less than seconds")
        if self.min_samples < LEAST_TURNS * self.block:
            raise ValueError(f"min_samples must be at least {LEAST_TURNS} blocks, here {LEAST_TURNS * self.block}")
        return self


def load_protocol(name: str) -> LatencyProtocol:
    """Load a measuring protocol by its name, or from a TOML file of the user's.

    Raises:
        SettingsError: there is no such protocol, or its file is not valid.
    """
    path = resources.find("calibration/latency", name, SettingsError)
    hint = f"A valid one to compare with: {resources.find('calibration/latency', 'standard')}"
    try:
        return LatencyProtocol.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", hint) from None
    except PydanticError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{path} is not valid: {f'{place}: ' if place else ''}{first['msg']}.", hint) from None


def bench(settings: Settings, run: RunFolder, progress: Progress) -> dict[str, Any]:
    """Measure both ONNX files of ``run`` as ``settings.bench`` says; write bench.json and return its content.

    Raises:
        RunFolderError, ModelError: an ONNX file is missing, corrupt, or of another plan.
        UsageError: the files take another number of images at a time.
        FaultError: the agent crashed or did not end.
        MissedError: the pruned model is slower; bench.json is written before.
    """
    target = load_target(settings.prune.target)
    protocol = load_protocol(settings.bench.protocol)
    job = _job(target, protocol, settings.bench, run)
    measured = _measure(job, protocol, progress)
    content = {
        "original": measured["original"],
        "pruned": measured["pruned"],
        "speedup": measured["speedup"],
        "protocol": {"name": settings.bench.protocol, **job["protocol"]},
        "environment": _environment(target, job, measured),
        "warnings": measured["warnings"],
    }
    write_json(run.bench, content)
    low, high = measured["speedup"]["ci95"]
    if high < 1:
        raise MissedError(
            f"The pruned model is slower: it runs at {low:.2f} to {high:.2f} times the original's speed.",
            f"The times are in {run.bench}. Multiply-accumulates are not latency: try another prune.budget.",
        )
    return content


def _job(target: Target, protocol: LatencyProtocol, bench: BenchSettings, run: RunFolder) -> dict[str, Any]:
    plan_hash = file_hash(run.require(run.plan, "prune"))
    files = {"original": run.original_onnx, "pruned": run.pruned_onnx}
    return {
        "job": "bench",
        "runtime": target.runtime,
        "threads": bench.threads or target.threads,
        "batch": bench.batch or target.batch,
        "protocol": protocol.model_dump(),
        "models": {
            name: {
                "path": str(run.require(path, "export").resolve()),
                "metadata": {"network": name, "plan_sha256": plan_hash},
            }
            for name, path in files.items()
        },
    }


def _measure(job: Mapping[str, Any], protocol: LatencyProtocol, progress: Progress) -> dict[str, Any]:
    planned_s = protocol.warmup_s + protocol.seconds
    with progress.task("Measuring the original and the pruned model in turns", planned_s) as task:
        reached_s = 0.0
        for event in run_job(job, protocol.warmup_s + protocol.limit_s + GRACE_S):
            if event["event"] == "result":
                task.advance(planned_s - reached_s)
                result: dict[str, Any] = event["result"]
                return result
            task.advance(min(event["seconds"], planned_s) - reached_s)
            reached_s = min(event["seconds"], planned_s)
    raise FaultError("The process that measures ended without a result.", "Run it again: catro-deploy bench")


def _environment(target: Target, job: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    models = {
        name: {"file": Path(model["path"]).name, "sha256": file_hash(Path(model["path"]))}
        for name, model in job["models"].items()
    }
    return {
        "target": target.name,
        "how": "measured",
        **measured["facts"],
        "precision": target.precision,
        "threads": job["threads"],
        "batch": job["batch"],
        "transfers": "none: inputs and outputs stay in the memory of the CPU",
        "models": models,
    }
