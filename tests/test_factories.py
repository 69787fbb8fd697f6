import shutil
import subprocess
import sys

import pytest

from catro_deploy.errors import DataError, ModelError
from catro_deploy.factories import load_factory


@pytest.fixture(autouse=True)
def _working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "parts_net_of_mine.py").write_text("def make_net(classes):\n    return classes\n")
    (tmp_path / "needs_more.py").write_text("import a_module_of_nobody\n")


def test_a_factory_is_found_in_the_working_folder():
    assert load_factory("parts_net_of_mine:make_net", ModelError)(4) == 4


def test_a_name_that_is_not_there_gets_the_nearest_in_its_module():
    with pytest.raises(ModelError, match=r"'make_nt'[\s\S]*parts_net_of_mine:make_net"):
        load_factory("parts_net_of_mine:make_nt", ModelError)
    with pytest.raises(DataError, match="make_net"):
        load_factory("parts_net_of_mine:zzz", DataError)


def test_for_a_module_that_is_missing_the_nearest_one_is_suggested():
    with pytest.raises(ModelError, match=r"'part_net_of_mine'[\s\S]*parts_net_of_mine:make_net"):
        load_factory("part_net_of_mine:make_net", ModelError)


def test_a_module_that_lacks_another_is_not_called_missing():
    with pytest.raises(ModuleNotFoundError, match="a_module_of_nobody"):
        load_factory("needs_more:make", ModelError)


def test_a_module_of_the_working_folder_does_not_replace_a_library(tmp_path):
    """In a separate process, since imported modules stay loaded."""
    (tmp_path / "wave.py").write_text("def make():\n    return 'mine'\n")
    (tmp_path / "own_net.py").write_text("import wave\ndef make():\n    return wave.__file__\n")
    code = "from catro_deploy.factories import load_factory as f; from catro_deploy.errors import ModelError as e\n"
    code += "print(f('own_net:make', e)())"
    found = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert not found.startswith(str(tmp_path))


@pytest.mark.parametrize("module", ["shared.evil", "shared.package.evil", "shared"])
def test_no_code_of_a_run_folder_is_imported(tmp_path, module):
    package = tmp_path / "shared" / "package"
    package.mkdir(parents=True)
    for file in (package / "evil.py", package / "__init__.py", tmp_path / "shared" / "evil.py"):
        file.write_text("from pathlib import Path\nPath('proof').touch()\ndef factory():\n    pass\n")
    if module == "shared":
        shutil.copy(package / "evil.py", tmp_path / "shared" / "__init__.py")
    (tmp_path / "shared" / "plan.json").write_text("{}")
    with pytest.raises(ModelError, match=rf"\b{module} .*{tmp_path}/shared\b"):
        load_factory(f"{module}:factory", ModelError)
    assert not (tmp_path / "proof").exists()
