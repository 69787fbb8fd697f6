"""List which stored rows were made by the current code, and which by older code.

    python -m benchmarks.stale [FILE ...] [--all]

Prints every row that is not current, by result file, and a summary of each file. "unknown": stored before rows had a
digest of their code (benchmarks/provenance.py). Exits with 1 if older code made any row, else with 0.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.common import RESULTS, table
from benchmarks.provenance import SOURCES, STAMP, Sources, digest, named_rows

State = Literal["current", "older code", "unknown"]
STATES: tuple[State, ...] = ("current", "older code", "unknown")


class Made(NamedTuple):
    """A row of a result file, when it was made, and whether by the current code."""

    file: str
    row: str
    date: str
    state: State


def states(file: str, content: Mapping[str, Any], sources: Sources) -> list[Made]:
    """The date and state of each row of a result file."""
    found = []
    for name, row in named_rows(content):
        made = row.get(STAMP)
        environment = row.get("environment") or {}
        state: State = "unknown"
        if made:
            state = "current" if digest(made["by"], sources) == made["code"] else "older code"
        found.append(Made(file, name, (made or environment).get("date", ""), state))
    return found


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
    parser.add_argument("--all", action="store_true", help="also print current rows")
    args = parser.parse_args()
    files = args.files or sorted(RESULTS.glob("*.json"))
    found = [one for file in files for one in states(file.name, json.loads(file.read_text()), SOURCES)]
    print(table(Made._fields, [one for one in found if args.all or one.state != "current"]))
    print(f"\n{summary(found)}")
    return int(any(one.state == "older code" for one in found))


if __name__ == "__main__":
    sys.exit(main())
