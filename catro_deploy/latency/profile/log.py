"""Samples on disk, written network by network so that measurements survive the process."""

import json
from pathlib import Path

from catro_deploy.agent.events import Sample
from catro_deploy.agent.wire import parse, read, to_json
from catro_deploy.errors import MessageError, StorageError
from catro_deploy.files import write_text

__all__ = ["SampleLog"]


class SampleLog:
    """The samples in the file ``path`` from an earlier measurement with the same ``heading``, and new ones.

    An incomplete line and all lines after it are dropped.

    Raises:
        StorageError: the disk is full, or the folder cannot be written.
    """

    def __init__(self, path: Path, heading: str) -> None:
        self.path = path
        self._samples: dict[str, Sample] = {}
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
        for line in lines[1:-1] if lines[:1] == [heading] else []:
            try:
                sample = read(Sample, parse(line, path.name))
            except MessageError:
                break
            self._samples[sample.name] = sample
        write_text(path, "\n".join([heading, *map(_line, self._samples.values()), ""]))

    def __contains__(self, name: str) -> bool:
        return name in self._samples

    def __getitem__(self, name: str) -> Sample:
        return self._samples[name]

    def add(self, sample: Sample) -> None:
        """Store ``sample`` under its ``name``.

        Raises:
            StorageError: the disk is full.
        """
        self._samples[sample.name] = sample
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(sample) + "\n")
        except OSError as error:
            raise StorageError(
                f"{self.path} could not be written: {error.strerror or error}.",
                "What was measured before is kept. Free some space, then run again: it continues from there.",
            ) from error

    @property
    def seconds(self) -> float:
        """Seconds that all samples took on the device."""
        return sum(sample.seconds for sample in self._samples.values())

    def delete(self) -> None:
        """Delete all samples."""
        self._samples.clear()
        self.path.unlink(missing_ok=True)


def _line(sample: Sample) -> str:
    return json.dumps(to_json(sample))
