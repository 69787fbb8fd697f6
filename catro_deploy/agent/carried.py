"""Jobs that were carried to a device which cannot be reached, beside this agent: ``python3 agent.pyz do``."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from catro_deploy.agent.jobs import Bundle, BundleResults, CarriedJob, Workspace
from catro_deploy.agent.process import job_events
from catro_deploy.agent.store import told_if_full
from catro_deploy.agent.wire import parse, read, to_json
from catro_deploy.errors import CatroError

__all__ = ["JOBS", "RESULT", "do"]

JOBS = "jobs.json"
"""A ``Bundle``; the files of its jobs are in the folder ``files``."""
RESULT = "result.json"
"""``BundleResults``: of each job that was done."""


def do(folder: Path) -> int:
    """Do the jobs of ``folder`` that are not done yet, show progress, and return the exit code."""
    place = folder / RESULT
    try:
        bundle = read(Bundle, parse((folder / JOBS).read_bytes(), JOBS), JOBS)
        results = _results(place) if place.is_file() else {}
        for name, job in bundle.jobs.items():
            if name not in results:
                results[name] = _done(job, folder)
                with told_if_full(folder):
                    unfinished = place.with_name(f".{RESULT}.part")
                    unfinished.write_text(json.dumps(to_json(BundleResults(results))), encoding="utf-8")
                    unfinished.replace(place)
    except CatroError as error:
        _say(f"\n{error}\n")
        return error.exit_code
    _say(f"Done. Carry this file back: {place}\nThere: catro-deploy import {RESULT}\n")
    return 0


def _results(place: Path) -> dict[str, Any]:
    return dict(read(BundleResults, parse(place.read_bytes(), RESULT), RESULT).results)


def _done(carried: CarriedJob, folder: Path) -> Any:  # noqa: ANN401 - what JSON can hold
    began = time.monotonic()
    _say(f"{carried.title} ...")
    workspace = Workspace(str(folder / "files"), str(folder))
    (last,) = deque(job_events(carried.job, workspace, carried.limit_s), maxlen=1)
    _say(f" {time.monotonic() - began:.0f} s\n")
    return last["result"]


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
