"""stages.json: the finished stages of a run folder, with their inputs and outputs."""

from dataclasses import dataclass

from catro_deploy.records.base import NonNegative, Record

__all__ = ["Missed", "StageRecord", "Stages"]


@dataclass(frozen=True)
class Missed:
    """A part of the request that a stage missed, and what to do about it."""

    problem: str
    hint: str


@dataclass(frozen=True)
class StageRecord:
    """A finished stage: the hash of its ``inputs``, and the hashes of its ``outputs`` by path below the run folder.

    ``finished`` is a date and time in ISO 8601 format.
    """

    inputs: str
    outputs: dict[str, str]
    seconds: NonNegative
    finished: str
    missed: tuple[Missed, ...]


@dataclass(frozen=True)
class Stages(Record):
    """The finished stages, in the order in which they finished."""

    stages: dict[str, StageRecord]
