"""The commit that made a row, in a repository of three commits, and what counts as a change since."""

import shutil
import subprocess
import time

import pytest

from benchmarks.history import changed_modules, sources_of_row
from benchmarks.provenance import digest, read_sources

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

BENCH = "benchmarks.bench"
FIRST, SECOND = "def cut(x):\n    return x + 1\n", "def cut(x):\n    return x + 2\n"
TODAY = time.strftime("%Y-%m-%d")


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    for name in ("benchmarks/__init__.py", "catro_deploy/__init__.py", "catro_deploy/other.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "benchmarks/bench.py").write_text("from catro_deploy.cut import cut\n")
    for text in (FIRST, SECOND, SECOND + "# a comment with an umlaut: \u00fc\n"):
        (tmp_path / "catro_deploy/cut.py").write_text(text, encoding="utf-8")
        git("add", ".")
        git("-c", "user.name=Nobody", "-c", "user.email=nobody@example.com", "commit", "--quiet", "--message=Change")
    return tmp_path


def code_of(root, cut):
    return digest(BENCH, read_sources(root) | {"catro_deploy.cut": cut})


@needs_git
def test_the_commit_of_a_row_is_found_by_its_digest(repository):
    then = sources_of_row(BENCH, code_of(repository, FIRST), TODAY, repository)
    assert then["catro_deploy.cut"] == FIRST
    assert set(then) == set(read_sources(repository))
    assert changed_modules(BENCH, then, read_sources(repository)) == ["catro_deploy.cut"]


@needs_git
def test_the_last_commit_with_that_code_counts(repository):
    then = sources_of_row(BENCH, code_of(repository, SECOND), TODAY, repository)
    assert then == read_sources(repository)


@needs_git
def test_code_that_was_never_committed_has_no_commit(repository):
    assert sources_of_row(BENCH, code_of(repository, "cut = abs"), TODAY, repository) is None


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ("def f(x):\n    if x:\n        raise ValueError(f'{x} is too large')\n    progress.note('finished')\n", []),
        ("def f(x):\n    if x:\n        raise TypeError(f'{x} is bad')\n    progress.note('done')\n", ["benchmarks.f"]),
        ("def f(x):\n    return 'done'\n", ["benchmarks.f"]),
        (None, ["benchmarks.f"]),
    ],
)
def test_messages_are_no_changes(now, changed):
    then = "def f(x):\n    'Check x.'\n    if x:\n        raise ValueError(f'{x} is bad')\n    progress.note('done')\n"
    names = {"benchmarks": "", "benchmarks.f": then}
    after = {"benchmarks": ""} | ({} if now is None else {"benchmarks.f": now})
    assert changed_modules("benchmarks.f", names, after) == changed
