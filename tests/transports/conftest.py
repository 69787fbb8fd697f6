"""A device over a real sshd, which is started once for each module that uses it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from catro_deploy.transports.registry import Device
from tests.transports.far import Far
from tests.transports.sshd import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def ssh_that_knows_it(server, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{server.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def home(tmp_path) -> Path:
    """Where the device keeps its files."""
    return tmp_path / "far"


@pytest.fixture
def device(server, home) -> Device:
    return server.device(home)


@pytest.fixture
def far(device) -> Far:
    return Far(device)
