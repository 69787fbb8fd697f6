"""Jobs for devices that cannot be reached: a tar file that is carried there, and a file of results that comes back."""

import io
import json
import tarfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from catro_deploy.agent.carried import JOBS, RESULT, carried_events, carried_jobs, job_name
from catro_deploy.agent.jobs import Bundle, CarriedJob, Job, read_result
from catro_deploy.agent.wire import to_json
from catro_deploy.errors import MessageError, RunFolderError
from catro_deploy.files import file_hash, replacing
from catro_deploy.transports.agent_file import agent_file

__all__ = ["Errand", "answer", "write_bundle"]

FOLDER = "catro-bundle"
README = """\
Networks to be verified and measured on this device: {target}.

It needs {needs}. Run nothing else at the same time:

    python3 agent.pyz do

Then carry {result} back to the computer that made this bundle, and run there:

    catro-deploy import {result}
"""

# For runtimes that need more than numpy and their own package.
NEEDS = {
    "tensorrt": "Python 3.10 or later with numpy, TensorRT 10.3 or later and CUDA's runtime",
    "openvino": "Python 3.10 or later with numpy and openvino",
}


J_co = TypeVar("J_co", bound=Job[Any], covariant=True)


@dataclass(frozen=True)
class Errand(Generic[J_co]):
    """One job with its ``files``, which are in one folder."""

    title: str
    job: J_co
    files: Sequence[str]
    limit_s: float


def write_bundle(path: Path, errands: Sequence[Errand[Job[Any]]], folder: Path, target: str) -> None:
    """Write a tar with the agent, the ``errands``, their files from ``folder``, and what to do with them.

    Raises:
        StorageError: it cannot be written.
    """
    runtime = errands[0].job.runtime
    jobs = {}
    for one in errands:
        hashes = _hashes(folder, one.files)
        jobs[job_name(to_json(one.job), hashes)] = CarriedJob(one.title, one.job, hashes, one.limit_s)
    bundle = Bundle(jobs)
    package = runtime.partition("-")[0]
    needs = NEEDS.get(package, f"Python 3.8 or later with numpy and {package}")
    texts = {
        "README.txt": README.format(target=target, needs=needs, result=RESULT).encode(),
        "agent.pyz": agent_file(runtime),
        JOBS: json.dumps(to_json(bundle)).encode(),
    }
    with replacing(path) as temporary, tarfile.open(temporary, "w") as tar:
        for name, content in texts.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
        for file in dict.fromkeys(file for one in errands for file in one.files):
            tar.add(folder / file, f"{FOLDER}/files/{file}")


def answer(results: Path, job: Job[Any], folder: Path, files: Sequence[str]) -> Generator[dict[str, Any], None, None]:
    """The events of ``job`` in the file ``results``, as JSON; the last one is its result.

    Raises:
        RunFolderError: it has no result: the file cannot be read, is damaged or incomplete, or belongs to other
            networks.
    """
    name = job_name(to_json(job), _hashes(folder, files))
    try:
        for found in carried_events(results):
            if found.job == name:
                if found.event["event"] == "result":
                    _require_result(job, found.event.get("result"), results)
                yield dict(found.event)
                if found.event["event"] == "result":
                    return
        is_of_this_run = name in carried_jobs(results)
    except MessageError as error:
        raise RunFolderError(error.problem, error.hint) from None
    if is_of_this_run:
        raise RunFolderError(
            f"{results} has no result for this run's {job.NAME} yet: the agent has not finished, or the end of the "
            "file is missing.",
            "On the device, run again: python3 agent.pyz do; it skips jobs that are done. Then copy the file again.",
        )
    raise RunFolderError(
        f"{results} has no result for this run's {job.NAME}: it is of another run, or of an older state of this one.",
        "Make a bundle of this run and carry it to the device: catro-deploy bundle",
    )


def _require_result(job: Job[Any], content: Any, results: Path) -> None:  # noqa: ANN401 - what JSON can hold
    try:
        read_result(job, content)
    except MessageError as error:
        raise MessageError(f"{results} cannot be read: {error.problem}", error.hint) from None


def _hashes(folder: Path, files: Sequence[str]) -> dict[str, str]:
    return {file: file_hash(folder / file) for file in files}
