"""Check that the measured figures of the documentation match benchmarks/results, rounded as printed.

    python -m benchmarks.figures

A figure is a number with a unit in running text or a table. benchmarks/figures.toml lists, for each paragraph, list
item or line of a table, where its figures come from; a figure may match only values that are listed there. Pages
written by a benchmark are generated from the results and not checked.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.common import CHECKOUT, DOCS, read_result
from benchmarks.provenance import WHOLE

SOURCES = Path(__file__).with_name("figures.toml")
README = CHECKOUT / "README.md"
WRITTEN = "Do not edit"
# Generated from benchmarks/roofline/page.md and results.
NOT_CHECKED = ("docs/roofline.md",)
FIGURE = re.compile(
    r"(?<![\w./^-])(\d[\d,]*(?:\.(\d+))?)\s?(%|x\b|(?:ms|us|s|min|minutes|seconds|times|points?|nats)\b)"
)
NOT_TEXT = re.compile(r"^```.*?^```$|<!--.*?-->|^#.*?$|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
BLOCK_ENDS = re.compile(r"\n\s*\n|\n(?=\s*(?:[|]|- |\d+\. ))")


def problems(page: str, text: str, entries: list[dict[str, Any]]) -> list[str]:
    """The problems with the figures of ``page``, whose Markdown is ``text``."""
    found, used = [], set()
    for block in BLOCK_ENDS.split(NOT_TEXT.sub(" ", text)):
        block = " ".join(block.split())
        here = [place for place, entry in enumerate(entries) if entry["text"] in block]
        used |= set(here)
        known = {printed for place in here for printed in named(entries[place])}
        values = [value for place in here for value in entry_values(entries[place])]
        figures = {match[0]: match for match in FIGURE.finditer(block)}
        found += [
            f"{page}: {printed} is not among its sources: {block[:60]}"
            for printed, match in figures.items()
            if printed not in known and not any(is_rounded(match, value) for value in values)
        ]
        found += [f"{page}: {printed} is listed but not in the text: {block[:60]}" for printed in known - set(figures)]
    unused = [entry["text"] for place, entry in enumerate(entries) if place not in used]
    return found + [f"{page}: no such text: {text}" for text in unused]


def named(entry: Mapping[str, Any]) -> Iterator[str]:
    """Figures without a stored result: not measured, or measured by hand."""
    yield from entry.get("stated", {})
    yield from entry.get("by_hand", {})


def entry_values(entry: Mapping[str, Any]) -> list[float]:
    """The values, or means of values, at the paths of ``entry``: FILE/KEY/.../KEY, with * for any part of a key."""
    values = [value for path in entry.get("values", []) for value in values_of(path)]
    return values + [fmean(values_of(path)) for path in entry.get("means", [])]


def is_cited(page: str, file: str, row: str) -> bool:
    """Whether a figure of ``page`` comes from the row ``row`` of ``file``, as provenance.named_rows names it."""
    paths = [path.split("/") for entry in sources().get(page, []) for path in paths_of(entry)]
    parts = () if row == WHOLE else row.split(": ")
    return any(
        name == file and all(any(fnmatchcase(part, key) for key in keys) for part in parts) for name, *keys in paths
    )


def paths_of(entry: Mapping[str, Any]) -> list[str]:
    """The paths in ``entry``."""
    return [*entry.get("values", []), *entry.get("means", [])]


@cache
def values_of(path: str) -> tuple[float, ...]:
    """All numbers at ``path``."""
    file, *keys = path.split("/")
    places: list[Any] = [read_result(file)]
    for key in keys:
        pairs = [pair for one in places for pair in (one.items() if isinstance(one, dict) else enumerate(one))]
        places = [value for name, value in pairs if fnmatchcase(str(name), key)]
    if not places:
        raise LookupError(f"{path} matches nothing in benchmarks/results")
    return tuple(float(value) for value in places)


def is_rounded(match: re.Match[str], value: float) -> bool:
    """Whether ``value`` is printed like ``match``; shares are printed as percent."""
    shown = value * 100 if match[3] == "%" else value
    return f"{shown:.{len(match[2] or '')}f}" == match[1].replace(",", "")


@cache
def sources() -> dict[str, list[dict[str, Any]]]:
    """The entries of benchmarks/figures.toml by page."""
    return tomllib.loads(SOURCES.read_text(encoding="utf-8"))


def pages() -> dict[str, str]:
    """README and all hand-written pages of the documentation except NOT_CHECKED, by their path in the checkout."""
    texts = {
        path.relative_to(CHECKOUT).as_posix(): path.read_text(encoding="utf-8")
        for path in (README, *sorted(DOCS.rglob("*.md")))
    }
    return {page: text for page, text in texts.items() if WRITTEN not in text and not page.startswith(NOT_CHECKED)}


def all_problems() -> list[str]:
    """The problems with the figures of README and documentation."""
    listed = sources()
    return [line for page, text in pages().items() for line in problems(page, text, listed.get(page, []))]


if __name__ == "__main__":
    found = all_problems()
    print("\n".join(found) or "All figures match the results.")
    sys.exit(bool(found))
