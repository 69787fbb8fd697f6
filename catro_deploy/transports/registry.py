"""The user's own devices: address and target of each, in devices.toml next to the user's targets."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catro_deploy import resources
from catro_deploy.errors import TargetError
from catro_deploy.files import write_text
from catro_deploy.toml import read_toml, toml_tables

__all__ = ["HERE", "Device", "add_device", "find_device", "load_devices", "remove_device"]

HERE = ""
"""The name of this machine, where a setting asks for a device."""

FIT_NAME = re.compile(r"[A-Za-z0-9_-]+")
# Any destination that ssh accepts; one that begins with a dash would be an option.
DESTINATION = r"^[^\s-]\S*$"


class Device(BaseModel):
    """One computer that runs networks, reached by ssh.

    Attributes:
        ssh: its address, as the ``ssh`` command takes it: ``user@host``, or a host in ``~/.ssh/config``.
        target: its target's name, or the path of the target's file.
        python: the interpreter there: 3.8 or later, with numpy and the target's runtime.
        folder: where the agent keeps files there; relative to the home of the user who logs in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    ssh: str = Field(pattern=DESTINATION)
    target: str = Field(min_length=1)
    python: str = Field("python3", min_length=1)
    folder: str = Field(".cache/catro-deploy", min_length=1)

    @property
    def target_name(self) -> str:
        """The name of its target, also if ``target`` is the path of a file."""
        return Path(self.target).name.removesuffix(".toml")

    def fitted(self, hint: str) -> str:
        """The agent's ``hint`` with this device's name and interpreter in the commands."""
        home = "~/" if "/" in self.python and not self.python.startswith("/") else ""
        python = home + shlex.quote(self.python.removeprefix("~/"))
        named = hint.replace("device add NAME", f"device add {self.name}")
        return named.replace("python3 -m pip", f"{python} -m pip")


def load_devices() -> dict[str, Device]:
    """All devices by name, sorted.

    Raises:
        TargetError: the file that holds them cannot be read.
    """
    path = _path()
    if path is None or not path.is_file():
        return {}
    try:
        tables: dict[str, dict[str, Any]] = read_toml(path)
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise TypeError(f"{name} is {table!r}, not a table of a device")
        return {name: Device.model_validate({**tables[name], "name": name}) for name in sorted(tables)}
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError) as error:
        reason = str(error)
    raise TargetError(f"{path} cannot be read: {reason}.", "Repair it; or delete it and add your devices again.")


def find_device(name: str) -> Device:
    """The device ``name``.

    Raises:
        TargetError: there is none.
    """
    devices = load_devices()
    if name not in devices:
        known = f"You have: {', '.join(devices)}." if devices else "You have none yet."
        raise TargetError(
            f"There is no device {name!r}. {known}",
            f"Add it: catro-deploy device add {name} --ssh USER@HOST --target TARGET",
        )
    return devices[name]


def add_device(device: Device, *, force: bool = False) -> Path:
    """Save ``device``; return the path of the file.

    Raises:
        TargetError: its name is invalid, or is taken without ``force``.
        StorageError: the file cannot be written.
    """
    devices, path = load_devices(), _path()
    if path is None:
        raise TargetError("This user has no home to keep devices in.", "Set the variable CATRO_CONFIG to a folder.")
    if not FIT_NAME.fullmatch(device.name):
        raise TargetError(f"{device.name!r} cannot be a device's name.", "Use letters, digits, '-' and '_'.")
    if device.name in devices and not force:
        raise TargetError(
            f"You have a device {device.name!r} already: {devices[device.name].ssh}",
            "Choose another name, or add --force to change it; values that are not given stay.",
        )
    _write({**devices, device.name: device}, path)
    return path


def remove_device(name: str) -> None:
    """Forget a device.

    Raises:
        TargetError: there is none of this name.
    """
    gone, path = find_device(name), _path()
    assert path is not None, "it was found there"
    _write({other: device for other, device in load_devices().items() if other != gone.name}, path)


def _write(devices: dict[str, Device], path: Path) -> None:
    tables = {name: device.model_dump(exclude={"name"}) for name, device in sorted(devices.items())}
    write_text(path, toml_tables(tables))


def _path() -> Path | None:
    settings = resources.config_folder()
    return settings / "devices.toml" if settings else None
