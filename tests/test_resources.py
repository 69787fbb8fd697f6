import subprocess
import sys
from pathlib import Path

import pytest

from catro_deploy import resources
from catro_deploy.errors import SettingsError, UsageError


def test_names_are_the_files_of_the_folder():
    assert resources.names("calibration/latency") == ("quick", "standard", "thorough")
    assert "x86-cpu" in resources.names("targets")


def test_a_name_gives_its_file():
    path = resources.find("targets", "x86-cpu")
    assert path.is_file()
    assert path.name == "x86-cpu.toml"


def test_an_unknown_name_gets_the_nearest_and_the_known_ones():
    with pytest.raises(SettingsError) as caught:
        resources.find("calibration/latency", "standart", SettingsError)
    assert "Did you mean standard?" in caught.value.problem
    assert "quick, standard, thorough" in caught.value.hint


def test_a_name_far_from_all_gets_no_suggestion():
    with pytest.raises(UsageError) as caught:
        resources.find("targets", "zzzzzz")
    assert "mean" not in caught.value.problem


@pytest.mark.parametrize("given", ["mine.toml", "./mine.toml", "sub/mine"])
def test_a_path_is_taken_as_one(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path(given).write_text("")
    assert resources.find("targets", given) == Path(given)


def test_a_path_without_a_file_is_refused():
    with pytest.raises(UsageError, match=r"There is no file nowhere/x86-cpu\.toml"):
        resources.find("targets", "nowhere/x86-cpu.toml")


def test_an_installed_package_reads_its_own_data(tmp_path):
    """The layout of the wheel: the data lies inside of the package, and no checkout is around it."""
    package = tmp_path / "catro_deploy"
    (package / "_data" / "targets").mkdir(parents=True)
    (package / "_data" / "targets" / "planted.toml").write_text("")
    for name in ("__init__.py", "errors.py", "resources.py"):
        (package / name).write_text((resources.PACKAGE / name).read_text())
    code = "from catro_deploy import resources; print(resources.find('targets', 'planted'), resources.names('targets'))"
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == f"{package / '_data/targets/planted.toml'} ('planted',)"
