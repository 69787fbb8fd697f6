"""The facts about a device that determine the latency of networks on it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from catro_deploy.agent.jobs import FactsJob
from catro_deploy.agent.results import FactsResult, facts_record
from catro_deploy.files import text_hash
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use

__all__ = ["device_facts", "differences", "digest", "fingerprint"]

DECIDING = ("cpu_model", "instruction_sets", "governor", "highest_clock_mhz", "runtime")


def device_facts(use: Use) -> FactsResult:
    """Facts about the device and its runtime.

    Raises:
        RuntimeMissingError: the runtime is not installed on the device.
        FaultError: the device's agent failed.
    """
    return run_job(use.device, FactsJob(use.runtime), Path(), ())


def fingerprint(facts: FactsResult, use: Use) -> dict[str, Any]:
    """What determines the latency of a layer: a profile is valid for this fingerprint only."""
    recorded = facts_record(facts)
    interface = {} if use.interface.is_plain else {"interface": use.interface.words}
    return {key: recorded[key] for key in DECIDING} | {
        "precision": use.precision,
        "threads": use.threads,
        "batch": use.batch,
        **interface,
        **({"kept_in_float": list(use.kept_in_float)} if use.kept_in_float else {}),
    }


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """The differences between two fingerprints, one phrase each."""
    keys = dict.fromkeys([*here, *there])
    return [f"{key}: {there.get(key)} there, {here.get(key)} here" for key in keys if here.get(key) != there.get(key)]


def digest(*parts: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """A short hash of ``parts``, the same for equal parts."""
    return text_hash(json.dumps(parts, sort_keys=True))[:16]
