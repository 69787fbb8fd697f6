"""Jobs that were carried to a device which cannot be reached, beside this agent: ``python3 agent.pyz do``."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from pathlib import Path

from catro_deploy.agent.jobs import Bundle, BundleResults, CarriedJob, Workspace, read_result
from catro_deploy.agent.process import job_events
from catro_deploy.agent.results import Result
from catro_deploy.agent.store import told_if_full
from catro_deploy.agent.wire import parse, read, to_json
from catro_deploy.errors import CatroError, MessageError

__all__ = ["JOBS", "RESULT", "do", "read_results"]

JOBS = "jobs.json"
"""A ``Bundle``; the files of its jobs are in the folder ``files``."""
RESULT = "result.json"
"""``BundleResults``: of each job that was done."""
COPY_AGAIN = "Copy it from the device again."


def do(folder: Path) -> int:
    """Do the jobs of ``folder`` that are not done yet, show progress, and return the exit code."""
    place = folder / RESULT
    try:
        bundle = read(Bundle, parse((folder / JOBS).read_bytes(), JOBS), JOBS)
        results = dict(read_results(place).results) if place.is_file() else {}
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


def read_results(path: Path) -> BundleResults:
    """The results in the file ``path``, which ``do`` wrote.

    Raises:
        MessageError: it cannot be read, is damaged, or of another version.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise MessageError(f"{path} cannot be read: {error.strerror or error}.", COPY_AGAIN) from None
    try:
        return read(BundleResults, parse(text, "file"))
    except MessageError as error:
        raise MessageError(f"{path} cannot be read: {error.problem}", f"{COPY_AGAIN} {error.hint}") from None


def _done(carried: CarriedJob, folder: Path) -> Result:
    began = time.monotonic()
    _say(f"{carried.title} ...")
    workspace = Workspace(str(folder / "files"), str(folder))
    (last,) = deque(job_events(carried.job, workspace, carried.limit_s), maxlen=1)
    _say(f" {time.monotonic() - began:.0f} s\n")
    result: Result = read_result(carried.job, last["result"])
    return result


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
