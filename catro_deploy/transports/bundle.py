"""Jobs for devices that cannot be reached: a tar that is carried there, and a file with the results that comes back."""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy.agent.carried import JOBS, RESULT
from catro_deploy.errors import RunFolderError
from catro_deploy.files import file_hash, replacing, text_hash
from catro_deploy.transports.agent_file import agent_file

__all__ = ["Errand", "answer", "write_bundle"]

FOLDER = "catro-bundle"
README = """\
Networks to be verified and measured on this device: {target}.

It needs {needs}, and nothing else. Let nothing else run meanwhile:

    python3 agent.pyz do

Then carry {result} back, and there, where the networks were made:

    catro-deploy import {result}
"""

# Of runtimes that need more than numpy and themselves.
NEEDS = {"tensorrt": "Python 3.10 or later with numpy, TensorRT 10.3 or later and CUDA's runtime"}


@dataclass(frozen=True)
class Errand:
    """One job with its ``files``, of one folder."""

    title: str
    job: Mapping[str, Any]
    files: Sequence[str]
    limit_s: float


def write_bundle(path: Path, errands: Sequence[Errand], folder: Path, target: str) -> None:
    """Write a tar with the agent, the ``errands``, their files from ``folder``, and what to do with them.

    Raises:
        StorageError: it cannot be written.
    """
    runtime = str(errands[0].job["runtime"])
    jobs = {
        _name(one.job, folder, one.files): {"title": one.title, "job": one.job, "limit_s": one.limit_s}
        for one in errands
    }
    needs = NEEDS.get(runtime, f"Python 3.8 or later with numpy and {runtime.partition('-')[0]}")
    texts = {
        "README.txt": README.format(target=target, needs=needs, result=RESULT).encode(),
        "agent.pyz": agent_file(runtime),
        JOBS: json.dumps(jobs).encode(),
    }
    with replacing(path) as temporary, tarfile.open(temporary, "w") as tar:
        for name, content in texts.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
        for file in dict.fromkeys(file for one in errands for file in one.files):
            tar.add(folder / file, f"{FOLDER}/files/{file}")


def answer(results: Path, job: Mapping[str, Any], folder: Path, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The ``result`` of ``job`` among ``results``, as an event.

    Raises:
        RunFolderError: it is not there: the results are damaged, or of other networks.
    """
    try:
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        result = found[_name(job, folder, files)]
    except (OSError, ValueError, TypeError):
        raise RunFolderError(f"{results} cannot be read.", "Carry it over once more.") from None
    except KeyError:
        raise RunFolderError(
            f"{results} has no answer to this run's {job['job']}: it is of another run, or of an older state of it.",
            "Make a bundle of this run and carry it to the device: catro-deploy bundle",
        ) from None
    yield {"event": "result", "result": result}


def _name(job: Mapping[str, Any], folder: Path, files: Sequence[str]) -> str:
    return text_hash(json.dumps([job, {file: file_hash(folder / file) for file in files}], sort_keys=True))
