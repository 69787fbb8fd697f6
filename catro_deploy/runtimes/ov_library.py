"""The package ``openvino``, imported without its telemetry; its properties and errors as text."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any

from catro_deploy.errors import RuntimeMissingError

__all__ = ["core", "has_device", "import_openvino", "keep_silent", "said", "short_version", "words"]

TELEMETRY = "openvino_telemetry"
# Lines of an exception that only give the place in OpenVINO's sources where it was raised.
ORIGIN = re.compile(r"^(Exception from|Check '.*' failed at|FrontEnd API failed with) ?\S*:?$")


def import_openvino() -> Any:  # noqa: ANN401 - a module that is not imported before
    """The module ``openvino``, without its telemetry.

    Raises:
        RuntimeMissingError: it is not installed, or does not fit this machine.
    """
    keep_silent()
    try:
        import openvino
    except ImportError as error:
        raise RuntimeMissingError(
            f"OpenVINO cannot be imported ({error}).", "Install it: python3 -m pip install openvino"
        ) from None
    return openvino


def keep_silent() -> None:
    """Disable OpenVINO's telemetry, if OpenVINO is imported later.

    Importing OpenVINO sends an event to Intel's account at Google Analytics and writes to ~/intel, unless the package
    that does so, one of its dependencies, cannot be imported: OpenVINO then uses a stub in its place.
    """
    sys.modules.setdefault(TELEMETRY, None)  # type: ignore[arg-type]


@lru_cache(None)
def core() -> Any:  # noqa: ANN401 - openvino.Core
    """The object that reads and compiles networks; one is enough.

    Raises:
        RuntimeMissingError: OpenVINO is not installed.
    """
    return import_openvino().Core()


def has_device(name: str) -> bool:
    """Whether OpenVINO finds a device of this kind here: ``CPU``, ``GPU`` (several are numbered) or ``NPU``.

    Raises:
        RuntimeMissingError: OpenVINO is not installed.
    """
    return any(found.partition(".")[0] == name for found in core().available_devices)


def short_version(openvino: Any) -> str:  # noqa: ANN401 - the module
    """``2026.4.1`` of 2026.4.1-22982-e213a147257-releases/2026/4."""
    return str(openvino.__version__).partition("-")[0]


def words(value: Any) -> str:  # noqa: ANN401 - whatever a property is
    """A property's value as text: OpenVINO has its own types for some."""
    if isinstance(value, (list, tuple, set)):
        return ", ".join(words(one) for one in value)
    return str(value.to_string() if hasattr(value, "to_string") else getattr(value, "name", value))


def said(error: Exception) -> str:
    """The message of an OpenVINO exception, without the place in its sources where it was raised."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not ORIGIN.match(line)) or type(error).__name__
