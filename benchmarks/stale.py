"""List which stored rows were made by the current code, and which by older code.

    python -m benchmarks.stale [FILE ...] [--cited-by PAGE] [--all] [--changes]

Prints every row that is not current, by result file, and a summary of each file. "unknown": stored before rows had a
digest of their code (benchmarks/provenance.py). ``--cited-by README.md`` leaves out rows that no figure of that page
comes from. ``--changes`` finds the commit that made each row and prints the
packages, and the number of their modules, that have changed since in more than messages. Exits with 1 if older code
made any row, else with 0.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.common import RESULTS, table
from benchmarks.figures import is_cited
from benchmarks.history import changed_modules, sources_of_row
from benchmarks.provenance import SOURCES, STAMP, Sources, is_current, named_rows

State = Literal["current", "older code", "unknown"]
STATES: tuple[State, ...] = ("current", "older code", "unknown")


class Made(NamedTuple):
    """A row of a result file, when it was made, whether by the current code, and what has changed since, if known."""

    file: str
    row: str
    date: str
    state: State
    changed: str = ""


def states(
    file: str, content: Mapping[str, Any], sources: Sources, *, page: str = "", changes: bool = False
) -> list[Made]:
    """The date and state of each row of a result file; with ``changes``, also what has changed since.

    With ``page``, only rows that its figures come from.
    """
    found = []
    for name, row in named_rows(content):
        if page and not is_cited(page, file, name):
            continue
        made = row.get(STAMP)
        environment = row.get("environment") or {}
        state: State = "unknown"
        changed = ""
        if made:
            state = "current" if is_current(row, sources) else "older code"
            if changes and state == "older code":
                changed = changes_since(made["by"], made["code"], made["date"], sources)
        found.append(Made(file, name, (made or environment).get("date", ""), state, changed))
    return found


def changes_since(by: str, code: str, date: str, sources: Sources) -> str:
    """The packages with changes since a row was made, and the number of changed modules in each."""
    if (then := sources_of_row(by, code, date)) is None:
        return "made by no commit"
    names = changed_modules(by, then, sources)
    packages = Counter(".".join(name.split(".")[:2]) for name in names)
    return ", ".join(f"{package.removeprefix('catro_deploy.')} {count}" for package, count in packages.items())


def summary(found: list[Made]) -> str:
    """The number of rows of each file by state."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        counts.setdefault(one.file, Counter())[one.state] += 1
    return table(["file", *STATES], [[file, *(count[state] for state in STATES)] for file, count in counts.items()])


def main() -> int:
    """Print the rows, then the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="default: all of benchmarks/results")
    parser.add_argument("--cited-by", metavar="PAGE", default="", help="only rows that figures of this page come from")
    parser.add_argument("--all", action="store_true", help="also print current rows")
    parser.add_argument("--changes", action="store_true", help="print what has changed since older code made a row")
    args = parser.parse_args()
    files = args.files or sorted(RESULTS.glob("*.json"))
    contents = {file.name: json.loads(file.read_text()) for file in files}
    chosen = {"page": args.cited_by, "changes": args.changes}
    found = [one for name, content in contents.items() for one in states(name, content, SOURCES, **chosen)]
    fields = Made._fields if args.changes else Made._fields[:-1]
    shown = [one[: len(fields)] for one in found if args.all or one.state != "current"]
    print(table(fields, shown))
    print(f"\n{summary(found)}")
    return int(any(one.state == "older code" for one in found))


if __name__ == "__main__":
    sys.exit(main())
