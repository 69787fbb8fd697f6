"""The guide builds without warnings, its Python code prints what it shows, and its links have targets."""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.conftest import one_thread  # noqa: F401 - these networks are small too

CHECKOUT = Path(__file__).parents[1]
PAGES = sorted((CHECKOUT / "docs").rglob("*.md"))
EXPLANATION = [page for page in PAGES if page.parent.name == "docs"]  # the tutorials are tested in tests/docs
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def snippets(page):
    """The Python blocks of a page, each with its line and the output in the text block right after it, if any."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in BLOCK.finditer(text):
        if block[1] == "python":
            found.append([text.count("\n", 0, block.start()) + 1, block[2], None, block.end()])
        elif found and not text[found[-1][3] : block.start()].strip():
            found[-1][2] = block[2]
    return [(line, code, printed) for line, code, printed, _ in found]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in EXPLANATION if snippets(page)], ids=lambda page: page.stem)
def test_the_python_of_a_page_does_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"__name__": "page"}
    for line, code, printed in snippets(page):
        said = io.StringIO()
        # Prepend empty lines so that errors refer to the line of the page.
        with contextlib.redirect_stdout(said):
            exec(compile("\n" * line + code, page.name, "exec"), names)
        if printed is not None:
            options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(printed, said.getvalue(), options), said.getvalue()


@pytest.mark.parametrize("page", [CHECKOUT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_the_files_that_a_page_links_to_are_there(page):
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        assert target.startswith(("https://", "http://")) or (page.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: pip install '.[docs]'")
def test_the_guide_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    api = (tmp_path / "site" / "api" / "index.html").read_text(encoding="utf-8")
    for name in ("prune", "PruneOptions", "PrunedModel.finetune", "PrunedModel.export", "PrunedModel.save", "load"):
        assert re.search(rf'id="catro_deploy\.[\w.]*{re.escape(name)}"', api), name
