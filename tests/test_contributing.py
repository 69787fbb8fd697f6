"""Everything that CONTRIBUTING.md refers to exists."""

import re

import pytest

from tests.tiny import CHECKOUT

TEXT = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE = CHECKOUT / "catro_deploy"
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL))
PATHS = sorted({name for name in CODE if re.fullmatch(r"[\w./-]+(/|\.(py|md|toml))(:\w+)?|[\w-]+/[\w/-]+", name)})
PACKAGES = [name for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE) for name in re.findall(r"`([\w/]+)`", row)]
IN_FILE = re.findall(r"`(?:\w+\.)?([A-Z]\w+)`[^`.]{0,20}\(`([\w/]+\.py)`\)", TEXT)


def find(path):
    return next((folder / path for folder in (PACKAGE, CHECKOUT) if (folder / path).exists()), None)


@pytest.mark.parametrize("name", PATHS)
def test_each_path_is_there(name):
    path, _, symbol = name.partition(":")
    found = find(path)
    assert found is not None
    assert not symbol or re.search(rf"^(class|def) {symbol}\b", found.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("symbol", "path"), IN_FILE)
def test_each_table_is_in_its_file(symbol, path):
    assert re.search(rf"^(class )?{symbol}\b", find(path).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_package_is_in_the_map():
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert there - {"_data"} == {name for name in PACKAGES if (PACKAGE / name).is_dir() and "/" not in name}


def test_there_are_paths():
    assert {"targets/", "runtimes/base.py:Runner", "graph/cut/kinds.py", "data/base.py"} <= set(PATHS)
    assert ("RUNTIMES", "runtimes/__init__.py") in IN_FILE
