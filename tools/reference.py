"""Writes the pages of docs/reference from the settings and the commands: ``make reference``."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import typer

from catro_deploy.cli.main import app
from catro_deploy.cli.settings_flags import command_with_flags
from catro_deploy.settings import Settings
from catro_deploy.settings.catalog import Setting, section_model, section_settings
from catro_deploy.toml import toml_value

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
WRITTEN = "<!-- Written by tools/reference.py. Do not edit: make reference. -->"
PROGRAM = "catro-deploy"
WORDS = {str: "text", Path: "path", int: "integer", float: "number", bool: "true or false"}

SETTINGS = f"""\
# Settings

{WRITTEN}

Each section is a table of `catro.toml`. Flags override the file, and the file overrides the defaults. Relative paths
start at the folder of the file. `-o section.key=value` sets any key on the command line; `catro-deploy init --print`
prints all of them as TOML. A default of "-" means that the value depends on other settings, as the description says.
"""
CLI = f"""\
# Command line

{WRITTEN}

Flags for settings are also keys of `catro.toml`, with the same range and default: [settings](settings.md). Flags
override the file. `python -m catro_deploy` is the same program.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | an internal error, a device or runtime that cannot be used, a full disk, or missing permission |
| 2 | wrong usage or input |
| 3 | the result misses a requirement: a budget, `--max-drop`, or the pruned network is slower |
| 130 | interrupted; the same command continues |
"""


def settings_page() -> str:
    """The page of every setting."""
    sections = [_section(name) for name in Settings.model_fields]
    return "\n".join([SETTINGS, *sections])


def _section(name: str) -> str:
    summary = " ".join((section_model(name).__doc__ or "").replace("``", "`").split()).partition(": ")[2]
    rows = [_setting(setting) for setting in section_settings(name).values()]
    head = ["| key | type | default | range | meaning |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([f"## {name}", "", _sentence(summary), "", *head, *rows, ""])


def _setting(setting: Setting) -> str:
    default = "-" if setting.default is None else f"`{toml_value(setting.default)}`"
    limits = f"`{setting.limits}`" if setting.limits else ""
    cells = [f"`{setting.name}`", _type(setting.type), default, limits, setting.help]
    return _row(cells)


def _type(kind: Any) -> str:  # noqa: ANN401 - any annotation
    """A type in words: ``list of integer or text``."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in inner)
    if origin in (list, tuple):
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"table of {_type(inner[1])}"
    if origin is typing.Annotated:
        return _type(inner[0])
    return WORDS[kind] if kind in WORDS else " or ".join(map(_type, inner))


def cli_page() -> str:
    """The page of every command."""
    root = typer.main.get_command(app)
    return "\n".join([CLI, *_commands(PROGRAM, root)])


def _commands(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - Typer's own types
    members = getattr(command, "commands", {})
    if command.params or command.help:
        yield _command(name, command_with_flags(command))
    for word, member in members.items():
        yield from _commands(f"{name} {word}", member)


def _command(name: str, command: Any) -> str:  # noqa: ANN401 - as above
    arguments = [one for one in command.params if not one.opts[0].startswith("-")]
    options = [one for one in command.params if one.opts[0].startswith("-")]
    usage = " ".join([name, *(_argument(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    lines = [f"## {name}", "", _markdown(command.help or ""), "", "```text", usage, "```", ""]
    if arguments:
        rows = [_row([f"`{_argument(one)}`", _value(one), _help(one)]) for one in arguments]
        lines += ["| argument | value | meaning |", "| --- | --- | --- |", *rows, ""]
    if options:
        rows = [_row([_names(one), _value(one), _help(one)]) for one in options]
        lines += ["| option | value | meaning |", "| --- | --- | --- |", *rows, ""]
    return "\n".join([*lines, *_examples(command.epilog or "")])


def _value(parameter: Any) -> str:  # noqa: ANN401 - as above
    return "flag" if getattr(parameter, "is_flag", False) else _type(parameter.type_descriptor.annotation)


def _argument(parameter: Any) -> str:  # noqa: ANN401 - as above
    word = (parameter.metavar or parameter.name).upper() + ("..." if parameter.nargs == -1 else "")
    return word if parameter.required else f"[{word}]"


def _names(parameter: Any) -> str:  # noqa: ANN401 - as above
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _help(parameter: Any) -> str:  # noqa: ANN401 - as above
    text = _markdown(parameter.help or "")
    if parameter.required:
        return f"{text} Required."
    shown = parameter.show_default and parameter.default not in (None, False, "", [], ())
    return f"{text} [default: {parameter.default}]" if shown else text


def _examples(epilog: str) -> list[str]:
    lines = [line.strip() for line in epilog.splitlines() if line.strip().startswith(PROGRAM)]
    return ["```sh", *lines, "```", ""] if lines else []


def _markdown(text: str) -> str:
    """Rich's markup as Markdown."""
    return re.sub(r"\[/?bold\]", "**", text.strip()).replace("\\[", "[").replace("``", "`")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """``text`` for a table: bars would end the cell, and angle brackets be HTML outside code."""
    return text if "`" in text else text.replace("|", "&#124;").replace("<", "&lt;")


PAGES = {"settings.md": settings_page, "cli.md": cli_page}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
