import pytest

from catro_deploy.errors import DataError, ModelError
from catro_deploy.factories import load_factory


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
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


def test_a_module_that_is_not_there_gets_the_nearest_beside_it():
    with pytest.raises(ModelError, match=r"'part_net_of_mine'[\s\S]*parts_net_of_mine:make_net"):
        load_factory("part_net_of_mine:make_net", ModelError)


def test_a_module_that_lacks_another_is_not_called_missing():
    with pytest.raises(ModuleNotFoundError, match="a_module_of_nobody"):
        load_factory("needs_more:make", ModelError)
