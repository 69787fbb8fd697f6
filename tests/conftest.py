"""Real data for the tests, where there is any: the folder that CATRO_TEST_DATA names."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real data, with ``unpack.py`` and its archives; without it the test is skipped."""
    folder = os.environ.get("CATRO_TEST_DATA")
    if not folder:
        pytest.skip("CATRO_TEST_DATA names no folder of real data")
    if not Path(folder).is_dir():
        pytest.skip(f"CATRO_TEST_DATA names {folder}, which is not there")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def gtsrb_root(test_data: Path) -> Path:
    """All of GTSRB at 32x32 in torchvision's layout, unpacked once into the system's temporary folder."""
    archive = test_data / "gtsrb32.zip"
    if not archive.is_file():
        pytest.skip(f"{archive} is not there")
    key = f"{os.getuid()}-{archive.stat().st_size}"
    root = Path(tempfile.gettempdir()) / f"catro-deploy-tests-{key}" / "gtsrb"
    if not root.is_dir():
        root.parent.mkdir(mode=0o700, exist_ok=True)
        # Unpacked beside and renamed, so a run that is killed leaves no half of it.
        with tempfile.TemporaryDirectory(dir=root.parent) as temporary:
            part = Path(temporary) / "gtsrb"
            subprocess.run([sys.executable, test_data / "unpack.py", "gtsrb", part], check=True)
            try:
                part.rename(root)
            except OSError:  # another test run was faster
                assert root.is_dir()
    return root
