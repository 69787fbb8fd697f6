"""Follow a tutorial: write its files and run its commands and Python code, in order, in a folder.

- A block with a title is a file; if the file exists in the folder already, it must contain the block's text.
- ``console``: lines after ``$`` are run; the lines below must be printed, in that order, with any figures.
- ``python`` without a title is run; a ``text`` block right after it is its output.

Settings are replaced by those of ``SHORT``, so that training and measuring are quick: figures after so little training
differ from those on the page.
"""

import contextlib
import io
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy.files import write_text
from catro_deploy.runs.listing import newest_run
from catro_deploy.toml import toml_tables
from tests.tiny import PROFILE_PROTOCOL, PROTOCOL, command, exit_code_of

BLOCK = re.compile(r'^```(console|python|text|toml)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
FURTHER_ROUND = re.compile(r"round (?!1:)\d+: ")
"""Lines not compared: the number of rounds that it takes to meet a budget depends on the machine."""
FASTEST = re.compile(r"(fp32|fp16|int8) +[\d.]+%|(ship:) \S+\.int8\.onnx ")
"""Lines in any order: the fastest precision, which is listed first and served, also depends on the machine."""
FIGURE = re.compile(r"-[0-9a-f]{8}\b|[-+]?\d[\d,.:]*(?:e[-+]\d+)?")

SHORT: dict[str, dict[str, Any]] = {
    "train": {"steps": 200},
    "prune": {"samples_per_class": 8, "reconstruct_images": 64},
    "finetune": {"steps": 6},
    "quantize": {"max_drop": 100.0},
    "verify": {"max_drop": 100.0, "tolerance": 0.1},
    "profile": {"protocol": "./few.toml"},
    "bench": {"protocol": "./moment.toml"},
}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the name of its file (or None), its text and the line of its fence."""

    language: str
    title: str | None
    text: str
    line: int


def blocks(page: Path, replaced: Mapping[str, str]) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    for old, new in replaced.items():
        assert old in text, f"{page.name} no longer has {old}"
        text = text.replace(old, new)
    return [Block(b[1], b[2], b[3], text.count("\n", 0, b.start()) + 1) for b in BLOCK.finditer(text)]


def follow(page: Path, folder: Path, replaced: Mapping[str, str] = {}, **settings: dict[str, Any]) -> None:
    """Do what ``page`` says in ``folder``, and compare what is printed.

    Texts of the page are ``replaced`` first; ``settings`` are sections that extend or replace those of ``SHORT``.

    Raises:
        AssertionError: a command fails, or a line that the page shows is not printed.
    """
    for name, text in (("few.toml", PROFILE_PROTOCOL), ("moment.toml", PROTOCOL)):
        write_text(folder / name, text)
    short, names = SHORT | settings, {"__name__": "page"}
    printed = ""
    with contextlib.chdir(folder):
        for block in blocks(page, replaced):
            where = f"{page.name}, line {block.line}"
            if block.title:
                _write(folder / block.title, block.text)
                _shorten(folder / block.title, short)
            elif block.language == "console":
                for line, shown in commands(block.text):
                    compare(shown, _run(line, where), f"{where}: {line}")
                    _shorten(folder / "catro.toml", short)
            elif block.language == "python":
                printed = _execute(block, page.name, names)
            elif block.language == "text":
                compare(block.text.splitlines(), printed, where)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, each with the output lines that the block shows."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, *shown = part.splitlines()
        yield line.partition("  #")[0].strip(), [one for one in shown if one.strip() not in ("", "...")]


def compare(shown: list[str], printed: str, where: str) -> None:
    """Check that the lines ``shown`` are among those that were ``printed``, in this order, with any figures.

    Lines for precisions may be in any order.
    """
    lines = printed.splitlines()
    rest = iter([_form(line) for line in lines])
    for line in shown:
        if FURTHER_ROUND.match(line):
            continue
        if found := FASTEST.match(line):
            assert any(one.startswith(f"{found[1] or found[2]} ") for one in lines), f"{where}: no line of {found[0]}"
            continue
        assert _form(line) in rest, f"{where}: not printed, or not in this order:\n{line}\nPrinted:\n{printed}"


def _form(line: str) -> str:
    """``line`` without its figures, and without the remark that a busy machine adds."""
    return " ".join(FIGURE.sub("#", line.removesuffix("; the machine was disturbed")).split())


def _write(file: Path, text: str) -> None:
    if file.exists():
        assert text in file.read_text(encoding="utf-8"), f"{file.name} does not hold what the page shows"
    else:
        write_text(file, text)


def _shorten(file: Path, short: dict[str, dict[str, Any]]) -> None:
    """Replace settings in ``file`` if it is a TOML file; [train], which decides whether to train, is not added."""
    if not file.is_file() or file.suffix != ".toml":
        return
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    wanted = {name: values for name, values in short.items() if name != "train" or name in content}
    new = {name: content.get(name, {}) | wanted.get(name, {}) for name in [*content, *wanted]}
    if new != content:
        write_text(file, toml_tables(new))


def _run(line: str, where: str) -> str:
    """The output of a command; catro-deploy runs in this process, since importing PyTorch takes longer than most."""
    words = shlex.split(line)
    if words[0] == "catro-deploy":
        done = command(*words[1:])
        assert done.exit_code == _exit_code(words[1]), f"{where}: {line}\n{done.output}"
        return done.output
    shell = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - of our pages
    assert shell.returncode == 0, f"{where}: {line}\n{shell.stderr}"
    return shell.stdout


def _exit_code(name: str) -> int:
    """The exit code that the newest run's records require of a command; 0 for one that measures nothing."""
    if name not in ("run", "quantize", "verify", "bench"):
        return 0
    return exit_code_of(newest_run(Path("runs")).path, *([] if name == "run" else [name]))


def _execute(block: Block, page: str, names: dict[str, Any]) -> str:
    """Run Python code and return its output; empty lines come first so that errors refer to the line of the page."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile("\n" * block.line + block.text, page, "exec"), names)
    return said.getvalue()
