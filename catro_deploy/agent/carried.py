"""Jobs of a bundle on a device that cannot be reached: ``python3 agent.pyz do``.

The results are lines of JSON in one file, so that neither side has to hold all logits in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catro_deploy.agent.events import LogitsPiece
from catro_deploy.agent.jobs import Bundle, BundleResults, CarriedEvent, CarriedJob, Workspace, read_result
from catro_deploy.agent.process import job_events
from catro_deploy.agent.store import storage_errors
from catro_deploy.agent.wire import parse, read, to_json
from catro_deploy.errors import CatroError, MessageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JOBS", "RESULT", "carried_events", "carried_jobs", "do", "job_name"]

JOBS = "jobs.json"
"""A ``Bundle``; the files of its jobs are in the folder ``files``."""
RESULT = "result.json"
"""A line with ``BundleResults``, then one for each ``CarriedEvent``."""
ANSWERS = (LogitsPiece.NAME, "result")
"""Events that hold a part of a job's answer; the engines of a device stay there."""
COPY_AGAIN = "Copy it from the device again."
COPY_BUNDLE_AGAIN = "Copy the bundle to the device again."
LONGEST_LINE = 1 << 28
CHUNK_BYTES = 1 << 20


def do(folder: Path) -> int:
    """Run the jobs of ``folder`` that are not done yet, show progress, and return the exit code."""
    place = folder / RESULT
    try:
        jobs = _jobs(folder)
        done = set()
        if place.exists():
            done = {one.job for one in carried_events(place) if one.event["event"] == "result"}
        for name, job in jobs.items():
            if name not in done:
                _do(name, job, folder, BundleResults(tuple(jobs)))
    except CatroError as error:
        _say(f"\n{error}\n")
        return error.exit_code
    _say(f"Done. Copy this file back to the host: {place}\nThen run there: catro-deploy import {RESULT}\n")
    return 0


def carried_jobs(path: Path) -> tuple[str, ...]:
    """The names of the jobs whose results the file ``path`` has once the agent has finished.

    Raises:
        MessageError: it cannot be read, is damaged, or is of another version.
    """
    return _heading(next(_lines(path), b"")).jobs


def carried_events(path: Path) -> Iterator[CarriedEvent]:
    """The events in the file ``path``, which ``do`` wrote.

    Raises:
        MessageError: it cannot be read, is damaged, or is of another version.
    """
    try:
        lines = _lines(path)
        _heading(next(lines, b""))
        for line in lines:
            found = read(CarriedEvent, parse(line, "file"), "file")
            if found.event.get("event") not in ANSWERS:
                raise MessageError("The file has an event that is not a result.")
            yield found
    except OSError as error:
        raise MessageError(f"{path} cannot be read: {error.strerror or error}.", COPY_AGAIN) from None
    except MessageError as error:
        raise MessageError(f"{path} cannot be read: {error.problem}", f"{COPY_AGAIN} {error.hint}") from None


def job_name(job: Any, files: Mapping[str, str]) -> str:  # noqa: ANN401 - what JSON can hold
    """The name of a job with this JSON and these ``files`` (name to SHA-256)."""
    return hashlib.sha256(json.dumps([job, dict(files)], sort_keys=True).encode()).hexdigest()


def _jobs(folder: Path) -> Mapping[str, CarriedJob]:
    """The jobs in ``folder``, by name.

    Raises:
        MessageError: the jobs, or one of their files, are missing or damaged.
    """
    try:
        content = parse(_content(folder / JOBS), JOBS)
        jobs = read(Bundle, content, JOBS).jobs
        for name, carried in jobs.items():
            if job_name(content["jobs"][name]["job"], carried.files) != name:
                raise MessageError(f"{JOBS} is damaged: the job {carried.title!r} was changed.", COPY_BUNDLE_AGAIN)
            for file, digest in carried.files.items():
                if _hash_of(folder / "files" / file) != digest:
                    raise MessageError(f"The file files/{file} is damaged.", COPY_BUNDLE_AGAIN)
    except OSError as error:
        problem = f"{error.filename or folder} cannot be read: {error.strerror or error}."
        raise MessageError(problem, COPY_BUNDLE_AGAIN) from None
    return jobs


def _do(name: str, carried: CarriedJob, folder: Path, heading: BundleResults) -> None:
    """Run one job, and append its events to the results, which begin with ``heading``."""
    began, place = time.monotonic(), folder / RESULT
    _say(f"{carried.title} ...")
    unfinished = place.with_name(f".{RESULT}.part")
    workspace = Workspace(str(folder / "files"), str(folder))
    with storage_errors(folder):
        if place.exists():
            shutil.copyfile(str(place), str(unfinished))
        else:
            unfinished.write_text(json.dumps(to_json(heading)) + "\n", encoding="utf-8")
        with unfinished.open("a", encoding="utf-8") as file:
            for event in job_events(carried.job, workspace, carried.limit_s):
                if event["event"] in ANSWERS:
                    file.write(json.dumps(to_json(CarriedEvent(name, event))) + "\n")
            read_result(carried.job, event.get("result"))
        unfinished.replace(place)
    _say(f" {time.monotonic() - began:.0f} s\n")


def _heading(line: bytes) -> BundleResults:
    return read(BundleResults, parse(line, "file"))


def _lines(path: Path) -> Iterator[bytes]:
    _require_regular(path)
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            yield line


def _content(path: Path) -> bytes:
    _require_regular(path)
    return path.read_bytes()


def _hash_of(path: Path) -> str:
    _require_regular(path)
    found = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
            found.update(chunk)
    return found.hexdigest()


def _require_regular(path: Path) -> None:
    """Raise OSError for files that may be endless: pipes and devices."""
    if not path.is_file():
        os.stat(str(path))  # noqa: PTH116 - raises FileNotFoundError if it does not exist
        raise OSError(f"{path} is not a regular file")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
