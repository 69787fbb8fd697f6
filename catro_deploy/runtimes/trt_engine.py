"""TensorRT engine files: an engine runs only where it was built, as its sidecar records, and is not loaded elsewhere.

Errors of TensorRT and Polygraphy are raised as this package's errors.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from catro_deploy.errors import FaultError, ModelError, RuntimeMissingError
from catro_deploy.runtimes.board import board_identity
from catro_deploy.runtimes.cuda import cuda_error, gpu_identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["import_tensorrt", "loaded", "place_of", "polygraphed", "sidecar_of", "typing_hint"]

REBUILD = "Build it here: catro-deploy build"
OLDEST = (10, 3)
SUPPORTED = (
    "TensorRT 10.3 to 11 are supported. On a Jetson install JetPack 6.1 or later (TensorRT 10.3), preferably JetPack 7."
)
# NVIDIA deprecated weak typing in favour of strong typing in 10.12: https://docs.nvidia.com/deeplearning/tensorrt/
# latest/getting-started/release-notes-10/10.12.0.html
MATURE = (10, 12)
LAST_LINES = 6


def import_tensorrt() -> Any:  # noqa: ANN401 - a module without annotations
    """The module ``tensorrt``.

    Raises:
        RuntimeMissingError: it is not installed, does not fit its libraries, or is older than 10.3.
    """
    try:
        import tensorrt
    except ImportError as error:
        raise RuntimeMissingError(
            f"TensorRT cannot be imported ({error}).",
            "Install it: python3 -m pip install tensorrt; on a Jetson: sudo apt-get install python3-libnvinfer",
        ) from None
    if _release(tensorrt) < OLDEST:
        raise RuntimeMissingError(f"TensorRT {tensorrt.__version__} is too old.", SUPPORTED)
    return tensorrt


def typing_hint(trt: Any) -> str:  # noqa: ANN401 - the module
    """What to try if a version from before strong typing became the rule fails; empty for later ones."""
    if _release(trt) >= MATURE:
        return ""
    return (
        f" Networks are strongly typed, which became TensorRT's rule with 10.12 (here: {trt.__version__}). JetPack "
        "7.0 and later have 10.13."
    )


def _release(trt: Any) -> tuple[int, ...]:  # noqa: ANN401 - the module
    return tuple([int(part) for part in re.findall(r"\d+", str(trt.__version__))[:2]])


@contextmanager
def polygraphed(doing: str) -> Iterator[None]:
    """Run the block with Polygraphy; its errors include ``doing`` and TensorRT's messages.

    Raises:
        FaultError: Polygraphy or this package failed in the block.
        RuntimeMissingError: Polygraphy is not installed.
    """
    try:
        from polygraphy.exception import PolygraphyException
        from polygraphy.logger import G_LOGGER
    except ImportError as error:
        raise RuntimeMissingError(f"Polygraphy cannot be imported ({error}).", "pip install polygraphy") from None
    G_LOGGER.use_python_logging_system = True  # TensorRT's own messages come through it, too
    log, errors = logging.getLogger("Polygraphy"), _LastErrors(logging.ERROR)
    log.propagate = False
    log.addHandler(errors)
    try:
        yield
    except PolygraphyException as error:
        status = re.search(r"CUDA Error: (\d+)", str(error))
        raise cuda_error(int(status[1]) if status else 0, errors.added_to(f"{doing} failed: {error}")) from None
    except FaultError as error:
        raise type(error)(errors.added_to(error.problem), error.hint) from None
    finally:
        log.removeHandler(errors)


class _LastErrors(logging.Handler):
    """Keeps the last errors that TensorRT logged."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._lines: deque[str] = deque(maxlen=LAST_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def added_to(self, problem: str) -> str:
        """``problem``, followed by these errors."""
        return "\n".join([problem, *(f"  {line}" for line in self._lines)])


def place_of() -> dict[str, Any]:
    """What an engine depends on: TensorRT's version, the GPU, and on a Jetson the module and its power mode.

    Raises:
        RuntimeMissingError: TensorRT or a GPU is missing.
    """
    return {"tensorrt": str(import_tensorrt().__version__), **gpu_identity(), **board_identity()}


def sidecar_of(engine: Path) -> Path:
    """The file next to ``engine`` that records what it was built from, how, and where."""
    return engine.with_name(f"{engine.name}.json")


def loaded(engine: Path) -> tuple[Any, dict[str, Any]]:
    """The engine and its sidecar.

    Raises:
        ModelError: the sidecar is missing or damaged, or the engine was built elsewhere.
        FaultError: TensorRT rejects it.
    """
    try:
        sidecar: dict[str, Any] = json.loads(sidecar_of(engine).read_text(encoding="utf-8"))
        built_at, dla = dict(sidecar["place"]), sidecar["settings"]["dla"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"{engine} has no sidecar that says where it was built ({type(error).__name__})."
        raise ModelError(problem, REBUILD) from None
    here = place_of()
    if built_at != here:
        differing = (
            f"{key} {built_at.get(key)} there, {here.get(key)} here"
            for key in dict.fromkeys((*here, *built_at))
            if built_at.get(key) != here.get(key)
        )
        raise ModelError(
            f"{engine.name} was built elsewhere or in another power mode: {'; '.join(differing)}.", REBUILD
        )
    with polygraphed(f"Loading {engine.name}"):
        from polygraphy.backend.trt import engine_from_bytes, get_trt_logger

        runtime = import_tensorrt().Runtime(get_trt_logger())
        if dla is not None:
            runtime.DLA_core = dla  # else the engine runs on core 0, whichever it was built for
        return engine_from_bytes(engine.read_bytes(), runtime=runtime), sidecar
