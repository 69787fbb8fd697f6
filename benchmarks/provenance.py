"""The code that made a row: a digest of all modules that a benchmark imports, directly or indirectly.

Comments, docstrings and layout do not count. Modules named in strings (``"catro_deploy.agent.bench:bench"``, ``"-m",
"catro_deploy"``) count as imported. Modules that only choose rows, print results or write the report of a run do not
count, nor do files that are not Python, such as targets.
"""

import ast
import hashlib
import re
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "SOURCES",
    "WHOLE",
    "Sources",
    "depends_on",
    "digest",
    "is_current",
    "named_rows",
    "plain",
    "read_sources",
    "stamp",
    "stamp_",
]

Sources = Mapping[str, str]

CHECKOUT = Path(__file__).resolve().parents[1]
ROOTS = ("benchmarks", "catro_deploy")
# Modules that choose which rows are run, write pages, tables and reports, or record the code.
NO_FIGURES = re.compile(
    r"benchmarks\.(.*(_selection|page|_tables)|provenance)|catro_deploy\.(report(\..*)?|stages\.report)"
)
# The package imports its public names on first use: only modules that use them depend on them.
LAZY = "catro_deploy"
OFFERED = {"PrunedModel": "catro_deploy.api", "prune": "catro_deploy.api", "load": "catro_deploy.networks"}
# Keys of a result file. ROWS hold rows, by name or in a list; MACHINES hold contents of the same form; PARTS are rows.
ROWS = ("rows", "networks")
MACHINES = ("machines", "processors")
PARTS = ("v100", "x86_cpu")
STAMP = "made"
# Name of the one row of a file without rows.
WHOLE = "all"


def read_sources(root: Path = CHECKOUT) -> dict[str, str]:
    """The text of every module below ``root`` by its name; a package has the text of its ``__init__``."""
    found = {}
    for top in ROOTS:
        for path in sorted((root / top).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


# Read when this process starts: code edited while it runs made none of its rows.
SOURCES = read_sources()


def depends_on(module: str, sources: Sources) -> set[str]:
    """``module`` and all modules of ``sources`` that it imports, directly or indirectly."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in sources and name not in found and not NO_FIGURES.fullmatch(name):
            found.add(name)
            waiting += [name.rpartition(".")[0], *_imports_of(name, sources[name])]
    return found


def digest(module: str, sources: Sources) -> str:
    """The digest of the code of ``module`` and of all modules that it depends on."""
    whole = hashlib.sha256()
    for name in sorted(depends_on(module, sources)):
        whole.update(f"{name}\n{plain(sources[name])}\n".encode())
    return whole.hexdigest()[:16]


def is_current(row: Mapping[str, Any], sources: Sources) -> bool:
    """Whether the code of ``sources`` made ``row``; False if unknown."""
    made = row.get(STAMP)
    return made is not None and digest(made["by"], sources) == made["code"]


def stamp() -> dict[str, str] | None:
    """The benchmark that this process runs, its digest, and the date; None if it does not run a benchmark."""
    module = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "")
    if not module.startswith("benchmarks."):
        return None
    return {"by": module, "code": digest(module, SOURCES), "date": time.strftime("%Y-%m-%d")}


def stamp_(content: dict[str, Any], stored: Mapping[str, Any], made: dict[str, str]) -> None:
    """Add ``made`` to each row of ``content`` that is not in ``stored`` or differs from it."""
    known = dict(named_rows(stored))
    for name, row in named_rows(content):
        if row != known.get(name):
            row[STAMP] = made


def named_rows(content: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a result file, each with a name; a file without rows is one row with the name WHOLE."""
    whole = [(WHOLE, content)] if content else []
    return [(name, row) for name, row in [*_rows(content)] or whole if isinstance(row, dict)]


def _rows(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if key in MACHINES:
            yield from ((f"{machine}: {name}", row) for machine, one in value.items() for name, row in _rows(one))
        elif key in ROWS:
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((str(name), row) for name, row in pairs)
        elif key in PARTS:
            yield key, value


@cache
def _imports_of(name: str, text: str) -> tuple[str, ...]:
    return tuple(_imports(name, text))


def _imports(name: str, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            if any(alias.name == LAZY for alias in node.names):
                yield from OFFERED.values()
        elif isinstance(node, ast.ImportFrom) and node.module and name != LAZY:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            if node.module == LAZY:
                yield from (OFFERED[alias.name] for alias in node.names if alias.name in OFFERED)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and name != LAZY:
            module = node.value.partition(":")[0]
            yield from (module, f"{module}.__main__")


@cache
def plain(text: str) -> str:
    """``text`` without comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
