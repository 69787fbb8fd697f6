"""The files that a wheel must contain."""

import zipfile

from tools.wheel import expected_files, missing_files


def test_targets_calibration_and_typing_marker_are_expected():
    names = expected_files()
    assert "catro_deploy/_data/targets/x86-cpu.toml" in names
    assert "catro_deploy/_data/calibration/profile/quick.toml" in names
    assert {"catro_deploy/py.typed", "catro_deploy/cli/main.py"} <= names
    assert not any("__pycache__" in name for name in names)


def test_a_file_that_the_wheel_lacks_is_named(tmp_path):
    left_out = "catro_deploy/_data/targets/x86-cpu.toml"
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as archive:
        for name in expected_files() - {left_out}:
            archive.writestr(name, "")
    assert missing_files(tmp_path / "some.whl") == [left_out]
