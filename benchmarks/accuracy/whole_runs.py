"""Complete runs of the command line, as rows of a benchmark."""

import argparse
import subprocess
import sys
from pathlib import Path

from catro_deploy.files import write_text
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings, settings_text

__all__ = ["add_folders", "whole_run"]

FOLDERS = ("gtsrb", "cifar10", "photographs", "weights")
MISSED = 3


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Add the options for the folders of images and weights."""
    for name in FOLDERS:
        parser.add_argument(f"--{name}", type=Path, default=Path("weights" if name == "weights" else "data"))


def whole_run(settings: Settings, work: Path, key: str) -> RunFolder:
    """The folder ``key`` in ``work`` after ``catro-deploy run``; an interrupted run resumes.

    A missed budget is a result, not an error.

    Raises:
        RuntimeError: the run failed.
    """
    run, config = RunFolder(work / key), work / f"{key}.toml"
    write_text(config, settings_text(settings))
    command = [sys.executable, "-m", "catro_deploy", "run", "--config", str(config), "--run", str(run.path)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, MISSED):
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}")
    return run
