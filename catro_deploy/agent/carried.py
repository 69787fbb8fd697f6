"""Jobs that were carried to a device which cannot be reached, beside this agent: ``python3 agent.pyz do``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from catro_deploy.agent.process import run_job
from catro_deploy.agent.store import told_if_full
from catro_deploy.errors import CatroError

__all__ = ["JOBS", "RESULT", "do"]

JOBS = "jobs.json"
"""``{name: {"title": ..., "job": ..., "limit_s": ...}}``; files lie in the folder ``files``."""
RESULT = "result.json"
"""``{name: result}`` of the jobs that were done."""


def do(folder: Path) -> int:
    """Do the jobs of ``folder`` that are not done yet, tell on the screen how it goes, and return the exit code."""
    jobs = json.loads((folder / JOBS).read_text(encoding="utf-8"))
    place = folder / RESULT
    results: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    try:
        for name, asked in jobs.items():
            if name not in results:
                results[name] = _done(asked, folder)
                with told_if_full(folder):
                    unfinished = place.with_name(f".{RESULT}.part")
                    unfinished.write_text(json.dumps(results), encoding="utf-8")
                    unfinished.replace(place)
    except CatroError as error:
        _say(f"\n{error}\n")
        return error.exit_code
    _say(f"Done. Carry this file back: {place}\nThere: catro-deploy import {RESULT}\n")
    return 0


def _done(asked: dict[str, Any], folder: Path) -> Any:  # noqa: ANN401 - what JSON can hold
    began, result = time.monotonic(), None
    _say(f"{asked['title']} ...")
    job = {**asked["job"], "folder": str(folder / "files"), "home": str(folder)}
    for event in run_job(job, asked["limit_s"]):
        if event["event"] == "result":
            result = event["result"]
    _say(f" {time.monotonic() - began:.0f} s\n")
    return result


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
