"""Shared fixtures: real data from the folder named by CATRO_TEST_DATA, if it is set, and a tiny classifier."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from catro_deploy.runs.folder import RunFolder
from tests.doubles.environment import VERSIONS, tensorrt_environment
from tests.exporter import read_operators_once
from tests.tiny import command, exit_code_of, write_work_folder

read_operators_once()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while the tests are imported, and search none of what stays in memory for it later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, run files with slow tests first; otherwise one process finishes long after the others."""
    if hasattr(config, "workerinput"):
        slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: not slow[item.path])


@pytest.fixture(scope="session", autouse=True)
def _children_hear_signals() -> None:
    """Restore SIGINT and SIGHUP, which a background shell and nohup set to ignored; child processes inherit that."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_targets_of_the_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the user's own targets, which would be listed and take precedence over the shipped ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CATRO_CONFIG", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_profiles_of_the_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither use nor overwrite the user's latency profiles; the tests share those that they measure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CATRO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real data, with ``unpack.py`` and its archives; the test is skipped if there is none."""
    folder = os.environ.get("CATRO_TEST_DATA")
    if not folder:
        pytest.skip("CATRO_TEST_DATA names no folder of real data")
    if not Path(folder).is_dir():
        pytest.skip(f"CATRO_TEST_DATA names {folder}, which does not exist")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def gtsrb_root(test_data: Path) -> Path:
    """All of GTSRB at 32x32 in torchvision's layout, unpacked once into the system's temporary folder."""
    archive = test_data / "gtsrb32.zip"
    if not archive.is_file():
        pytest.skip(f"{archive} does not exist")
    key = f"{os.getuid()}-{archive.stat().st_size}"
    root = Path(tempfile.gettempdir()) / f"catro-deploy-tests-{key}" / "gtsrb"
    if not root.is_dir():
        root.parent.mkdir(mode=0o700, exist_ok=True)
        # Unpacked next to it and renamed, so that a killed run does not leave a partial copy.
        with tempfile.TemporaryDirectory(dir=root.parent) as temporary:
            part = Path(temporary) / "gtsrb"
            subprocess.run([sys.executable, test_data / "unpack.py", "gtsrb", part], check=True)
            try:
                part.rename(root)
            except OSError:  # another test run was faster
                assert root.is_dir()
    return root


@pytest.fixture(scope="session", params=VERSIONS)
def tensorrt_anywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables for the test double of each version of TensorRT."""
    return tensorrt_environment(request.param, tmp_path_factory.getbasetemp() / f"tensorrt-{request.param}")


@pytest.fixture
def every_tensorrt(tensorrt_anywhere: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give child processes a test double of TensorRT and of a GPU; the test runs once for each version."""
    for name, value in tensorrt_anywhere.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def tensorrt_there(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables for the test double of the newest TensorRT."""
    version = VERSIONS[-1]
    return tensorrt_environment(version, tmp_path_factory.getbasetemp() / f"tensorrt-{version}")


@pytest.fixture
def tensorrt(tensorrt_there: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give child processes a test double of the newest TensorRT and of a GPU; this process finds it installed."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "doubles")
    for name, value in tensorrt_there.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def tiny_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder of tests.tiny, for other fixtures to copy."""
    folder = tmp_path_factory.mktemp("tiny") / "template"
    folder.mkdir()
    write_work_folder(folder)
    return folder


@pytest.fixture
def tiny(tiny_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate working folder with images, a checkpoint and catro.toml; it is the current directory."""
    folder = tmp_path / "work"
    shutil.copytree(tiny_template, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_finished(tiny_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run folder, for copying; its run.toml refers to the images of ``tiny_template`` by absolute paths."""
    run = tmp_path_factory.mktemp("finished") / "run"
    done = command("run", "--config", str(tiny_template / "catro.toml"), "--run", str(run), cwd=tiny_template)
    assert done.exit_code == exit_code_of(run), done.stderr
    return run


@pytest.fixture
def tiny_run(tiny: Path, tiny_finished: Path) -> RunFolder:
    """A separate finished run folder named ``run`` in the working folder."""
    shutil.copytree(tiny_finished, tiny / "run")
    return RunFolder(Path("run"))
