"""Flags for settings, ``-o section.key=value`` for the others, and help that shows the most used ones.

A command's flags are made from the settings' models when it is called: making those of all commands would slow
``--help`` down.
"""

import functools
import inspect
import re
import tomllib
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from catro_deploy.cli.flags import Flag
from catro_deploy.errors import SettingsError
from catro_deploy.toml import parse_toml

if TYPE_CHECKING:
    from catro_deploy.settings.catalog import Setting

__all__ = ["Flags", "command_with_flags", "with_flags"]

Flags = dict[str, dict[str, Any]]
"""Section to key to value, as ``load_settings`` takes it; None if the flag was not given."""

OTHERS, HELP_ALL = "settings_given", "help_all"


def with_flags(*table: Flag, first: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the flags of ``table`` to a command, which gets their values as its keyword ``flags``.

    If ``first`` names flags, ``--help`` shows only those, and ``--help-all`` all.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "flags"]

        @functools.wraps(function)
        def command(**given: Any) -> None:  # noqa: ANN401 - Typer passes values of every type
            values = {flag: given.pop(flag.name) for flag in table}
            flags = _by_section(values, given.pop(OTHERS, None) or ())
            given.pop(HELP_ALL, None)
            function(flags=flags, **given)

        def whole() -> Callable[..., None]:
            return _signed(command, [*_parameters(table, first.split()), *own])

        command.with_flags = whole  # type: ignore[attr-defined]
        return _signed(command, own)

    return decorate


def command_with_flags(command: Any) -> Any:  # noqa: ANN401 - Typer's own types
    """``command`` with the flags that ``with_flags`` has recorded for it, if any."""
    make = getattr(command.callback, "with_flags", None)
    if make is None or not isinstance(command, TyperCommand):
        return command
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    single.command(command.name, help=command.help, epilog=command.epilog)(make())
    return typer.main.get_command(single)


def _signed(function: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """The same function with these parameters, for Typer to read."""

    @functools.wraps(function)
    def signed(**given: Any) -> None:  # noqa: ANN401 - as above
        function(**given)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    signed.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    signed.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return signed


def _parameters(table: Sequence[Flag], first: Sequence[str]) -> list[inspect.Parameter]:
    parameters = [_parameter(flag, hidden=bool(first) and flag.name not in first) for flag in table]
    if table:
        given = typer.Option("-o", "--option", metavar="SECTION.KEY=VALUE", help="Set any setting; may be repeated.")
        parameters.append(_keyword(OTHERS, Annotated[Optional[list[str]], given], None))  # noqa: UP045 - for Typer
    if first:
        text = f"Show all {len(table)} flags for settings and exit."
        everything = typer.Option("--help-all", help=text, is_eager=True, callback=_show_all, expose_value=False)
        parameters.append(_keyword(HELP_ALL, Annotated[bool, everything], False))
    return parameters


def _parameter(flag: Flag, *, hidden: bool) -> inspect.Parameter:
    """``flag`` as a parameter of a Typer command; None if it is not given."""
    from catro_deploy.settings.catalog import settings_by_place

    settings = [settings_by_place()[place] for place in flag.settings]
    setting = settings[0]
    kind = list[str] if setting.is_list or setting.repeatable else setting.type
    word = flag.name.replace("_", "-")
    declaration = f"--{word}/--no-{word}" if kind is bool else f"--{word}"
    option = typer.Option(
        declaration, help=_help(settings), rich_help_panel=flag.panel, show_default=False, hidden=hidden
    )
    return _keyword(flag.name, Annotated[Optional[kind], option], None)  # noqa: UP045 - of a value, not of a name


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:  # noqa: ANN401 - any annotation
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help(settings: "Sequence[Setting]") -> str:
    """The help of ``settings``, with the default and the limits of the first, in Typer's form; brackets are escaped."""
    setting = settings[0]
    default = setting.default
    if setting.type is bool:
        default = "on" if default else "off"
    shown = "" if default is None or default in ("", []) else f"default: {default}"
    facts = "; ".join(filter(None, [shown, setting.limits]))
    text = ". ".join(dict.fromkeys(each.help for each in settings))
    return f"{text}.{f' [{facts}]' if facts else ''}".replace("[", "\\[")


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Print the help with all flags."""
    if wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


def _by_section(values: dict[Flag, Any], others: Sequence[str]) -> Flags:
    flags: Flags = {}
    for flag, value in values.items():
        if isinstance(value, list) and not any(map(str.strip, value)):
            raise _empty(f"--{flag.name.replace('_', '-')}")
        for place in flag.settings:
            section, key = place.split(".")
            flags.setdefault(section, {})[key] = _members(section, key, value) if isinstance(value, list) else value
    for text in others:
        section, key, value = _read(text)
        if isinstance(value, str):
            value = _members(section, key, [value])
        elif not isinstance(value, list) and _item_type(section, key) is not None:
            value = [value]
        flags.setdefault(section, {})[key] = value
    return flags


def _members(section: str, key: str, texts: Sequence[str]) -> Any:  # noqa: ANN401 - of any setting
    """For a list, the items of ``texts`` split at commas; for other settings, ``texts`` as one text."""
    from catro_deploy.settings.names import split_names

    kind = _item_type(section, key)
    if kind is None:
        return ", ".join(texts)
    names = split_names(texts)
    if kind is str or str in typing.get_args(kind):
        return names
    return [int(name) if name.isdecimal() else name for name in names]


def _empty(flag: str) -> SettingsError:
    """The error for a flag with an empty value, often a shell variable that is not set."""
    return SettingsError(f"{flag} is empty.", f"Give it a value, or leave {flag} out.")


def _item_type(section: str, key: str) -> Any:  # noqa: ANN401 - any type
    """The type of a single value of a setting that takes several; None for other settings."""
    from catro_deploy.settings.catalog import settings_by_place

    setting = settings_by_place().get(f"{section}.{key}")
    return typing.get_args(setting.type)[0] if setting is not None and setting.is_list else None


def _read(text: str) -> tuple[str, str, Any]:
    """Parse ``section.key=value``: the value is TOML or, if it is not valid TOML, text without quotes.

    Raises:
        SettingsError: ``text`` has another form, or its value is empty.
    """
    form = re.fullmatch(r"\s*(\w+)\.(\w+)\s*=(.*)", text, re.DOTALL)
    if form is None:
        raise SettingsError(
            f"-o {text} is not of the form section.key=value.",
            "For instance -o prune.ridge=0. All settings with their defaults: catro-deploy init --print",
        )
    section, key, written = form.groups()
    if not written.strip():
        raise _empty(f"-o {section}.{key}")
    try:
        document = parse_toml(f"value = {written}")
    except tomllib.TOMLDecodeError:
        document = {}
    return section, key, document["value"] if len(document) == 1 else written.strip()  # not if further lines set keys
