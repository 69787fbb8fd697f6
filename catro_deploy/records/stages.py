"""stages.json: which stages of a run folder ended, with which inputs and outputs."""

from dataclasses import dataclass

from catro_deploy.records.base import NonNegative, Record

__all__ = ["Missed", "StageRecord", "Stages"]


@dataclass(frozen=True)
class Missed:
    """What a stage missed of the request, and what to do."""

    problem: str
    hint: str


@dataclass(frozen=True)
class StageRecord:
    """A stage that ended: the hash of its ``inputs``, and the hashes of its ``outputs`` by path below the run folder.

    ``finished`` is a date and time as in ISO 8601.
    """

    inputs: str
    outputs: dict[str, str]
    seconds: NonNegative
    finished: str
    missed: tuple[Missed, ...]


@dataclass(frozen=True)
class Stages(Record):
    """The stages that ended, in that order."""

    stages: dict[str, StageRecord]
