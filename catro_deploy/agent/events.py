"""Events that the agent reports while it runs a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Dict, Optional, Tuple, Type

from catro_deploy.agent.wire import Tagged

__all__ = [
    "Emit",
    "EngineBuilding",
    "EngineBuilt",
    "Event",
    "FilePiece",
    "ImagesDone",
    "LogitsPiece",
    "NodeTimes",
    "Note",
    "Progress",
    "Sample",
]


class Event(Tagged):
    """An event before the result."""

    KEY: ClassVar[str] = "event"
    KINDS: ClassVar[Dict[str, Type[Any]]] = {}


Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Note(Event):
    """A message for the user."""

    NAME: ClassVar[str] = "note"

    text: str


@dataclass(frozen=True)
class Progress(Event):
    """Seconds since a bench began to measure."""

    NAME: ClassVar[str] = "progress"

    seconds: float


@dataclass(frozen=True)
class ImagesDone(Event):
    """``images`` more images were classified."""

    NAME: ClassVar[str] = "images"

    images: int


@dataclass(frozen=True)
class EngineBuilding(Event):
    """An engine is being built: that time does not count towards the job's time limit."""

    NAME: ClassVar[str] = "building"


@dataclass(frozen=True)
class LogitsPiece(Event):
    """The next bytes of the logits of ``model``: little-endian float32 (images, classes), row by row."""

    NAME: ClassVar[str] = "logits"

    model: str
    base64: str


@dataclass(frozen=True)
class EngineBuilt(Event):
    """One more engine was built, or found."""

    NAME: ClassVar[str] = "built"


@dataclass(frozen=True)
class FilePiece(Event):
    """The next bytes of the engine ``name``."""

    NAME: ClassVar[str] = "file"

    name: str
    base64: str


@dataclass(frozen=True)
class NodeTimes:
    """A node of a network as the runtime names it, and its time in each round."""

    name: str
    rounds_us: Tuple[float, ...]


@dataclass(frozen=True)
class Sample(Event):
    """The times of one variant of a network, a value for each round; ``seconds`` is the time of measuring it.

    ``nodes`` are in the order of execution, ``whole_us`` is the time of the network without profiling, if requested,
    and ``reference_us`` that of the reference network around each visit.
    """

    NAME: ClassVar[str] = "sample"

    name: str
    seconds: float
    nodes: Tuple[NodeTimes, ...]
    whole_us: Optional[Tuple[float, ...]]
    reference_us: Tuple[float, ...]
