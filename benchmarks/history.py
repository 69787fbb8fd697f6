"""The commit whose code made a row, found by the row's digest, and which modules have changed since."""

import ast
import subprocess
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from pathlib import Path

from benchmarks.provenance import CHECKOUT, ROOTS, Sources, depends_on, digest, plain

__all__ = ["changed_modules", "sources_of_row"]

# Rows were made by a commit of their date, or by an older one that a long measurement started from.
DAYS_BEFORE = 3


@cache
def sources_of_row(by: str, code: str, made: str, root: Path = CHECKOUT) -> Sources | None:
    """The modules of the last commit in which the benchmark ``by`` has the digest ``code``; None if there is none.

    ``made`` is the date of the row.
    """
    day = date.fromisoformat(made)
    for commit in _commits(day - timedelta(DAYS_BEFORE), day + timedelta(1), root):
        if _digest(by, commit, root) == code:
            return _sources(commit, root)
    return None


def changed_modules(by: str, then: Sources, now: Sources) -> list[str]:
    """The modules that ``by`` depended on ``then`` or depends on ``now``, and that differ in more than messages."""
    of_both = depends_on(by, then) | depends_on(by, now)
    return sorted(name for name in of_both if _without_messages(then.get(name)) != _without_messages(now.get(name)))


@cache
def _without_messages(text: str | None) -> str | None:
    """The code of a module without the texts of its errors and notes; None if there is no such module."""
    if text is None:
        return None
    tree = ast.parse(plain(text))
    for node in ast.walk(tree):
        is_note = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "note"
        if is_note or isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    part.value = ""
    return ast.unparse(tree)


@cache
def _digest(by: str, commit: str, root: Path) -> str:
    return digest(by, _sources(commit, root))


@cache
def _commits(first: date, last: date, root: Path) -> list[str]:
    """The commits between two dates, the last one first."""
    found = _git(root, "log", f"--since={first} 00:00", f"--until={last} 23:59", "--format=%H")
    return found.decode().split()


@cache
def _sources(commit: str, root: Path) -> dict[str, str]:
    """The modules of ``commit`` by name, as ``provenance.read_sources`` returns those of the checkout."""
    listed = _git(root, "ls-tree", "-r", "--format=%(objectname) %(path)", commit, "--", *ROOTS).decode()
    blobs = dict(line.split(" ", 1)[::-1] for line in listed.splitlines() if line.endswith(".py"))
    texts = dict(zip(blobs, _texts(list(blobs.values()), root), strict=True))
    named = {path.removesuffix(".py").replace("/", "."): text for path, text in texts.items()}
    return {name.removesuffix(".__init__"): text for name, text in sorted(named.items())}


def _texts(blobs: list[str], root: Path) -> Iterator[str]:
    """The contents of ``blobs``. For each, git writes the line ``<name> blob <bytes>``, the content and a line feed."""
    answer = _git(root, "cat-file", "--batch", given="\n".join(blobs).encode())
    at = 0
    for _ in blobs:
        start = answer.index(b"\n", at) + 1
        end = start + int(answer[at:start].split()[-1])
        yield answer[start:end].decode()
        at = end + 1


def _git(root: Path, *arguments: str, given: bytes | None = None) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, input=given, capture_output=True, check=True).stdout
