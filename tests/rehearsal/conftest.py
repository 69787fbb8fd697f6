"""A far side behind a real sshd, and a tiny network to verify and benchmark there."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rehearsal.flow import Rehearsal
from tests.transports.sshd import MISSING, serving

FULL = os.environ.get("CATRO_REHEARSAL") == "full"

# In fp32 an engine computes what PyTorch computes; the double computes fp16 as the processor does.
FP32 = """\
extends = "jetson-orin"
title = "A Jetson AGX Orin in fp32"
precision = "fp32"
[sources]
precision = "a choice"
"""

Enter = Callable[[Path], Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all rehearsals as slow; those that are marked ``full`` run with ``make rehearsal`` only."""
    own = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in own:
        item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.timeout(1800))
        if item.get_closest_marker("full") and not FULL:
            item.add_marker(pytest.mark.skip(reason="make rehearsal runs it"))


@pytest.fixture
def rehearse(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, Enter], Rehearsal]]:
    """Make a rehearsal for a target on a far side; the current folder is the working folder of tests.tiny."""
    if MISSING:
        pytest.skip(MISSING)
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))
    (tmp_path / "config" / "targets").mkdir(parents=True)
    (tmp_path / "config" / "targets" / "jetson-fp32.toml").write_text(FP32)
    (tmp_path / "sshd").mkdir()
    with serving(tmp_path / "sshd") as server:
        monkeypatch.setenv("PATH", f"{tmp_path / 'sshd' / 'bin'}{os.pathsep}{os.environ['PATH']}")

        def make(target: str, enter: Enter) -> Rehearsal:
            try:
                (tmp_path / "device").mkdir()
                python = enter(tmp_path / "device")
            except LookupError as missing:
                pytest.skip(str(missing))
            return Rehearsal(server, target, python, tmp_path / "device" / "home")

        yield make
