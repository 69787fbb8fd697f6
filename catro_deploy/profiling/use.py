"""How a network is used on a device, and what of the device decides its times."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy.devices import HERE
from catro_deploy.errors import FaultError
from catro_deploy.files import text_hash
from catro_deploy.settings import Settings
from catro_deploy.targets import Target
from catro_deploy.transports import run_job

__all__ = ["Use", "device_facts", "differences", "digest", "fingerprint", "use_of"]

DECIDING = ("cpu_model", "instruction_sets", "governor", "highest_clock_mhz", "runtime")


@dataclass(frozen=True)
class Use:
    """The runtime, its precision and threads, and the images at a time; ``device`` is one of the user's, or HERE."""

    target: str
    runtime: str
    precision: str
    threads: int
    batch: int
    device: str = HERE


def use_of(target: Target, settings: Settings) -> Use:
    """How ``target`` is used under ``settings``."""
    threads, batch = settings.bench.threads or target.threads, settings.bench.batch or target.batch
    return Use(target.name, target.runtime, target.precision, threads, batch, settings.prune.device)


def device_facts(use: Use) -> dict[str, Any]:
    """What the device and its runtime are.

    Raises:
        RuntimeMissingError: the runtime is not installed there.
        FaultError: the device's agent failed.
    """
    for event in run_job(use.device, {"job": "facts", "runtime": use.runtime}, Path(), ()):
        if event["event"] == "result":
            facts: dict[str, Any] = event["result"]
            return facts
    raise FaultError("The device's agent ended without an answer.", "See what works: catro-deploy doctor")


def fingerprint(facts: Mapping[str, Any], use: Use) -> dict[str, Any]:
    """What decides how long a layer takes: a profile serves no other fingerprint."""
    return {key: facts[key] for key in DECIDING} | {
        "precision": use.precision,
        "threads": use.threads,
        "batch": use.batch,
    }


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """In what two fingerprints differ, a phrase each."""
    keys = dict.fromkeys([*here, *there])
    return [f"{key}: {there.get(key)} there, {here.get(key)} here" for key in keys if here.get(key) != there.get(key)]


def digest(*parts: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """A short name for ``parts``, equal if they are."""
    return text_hash(json.dumps(parts, sort_keys=True))[:16]
