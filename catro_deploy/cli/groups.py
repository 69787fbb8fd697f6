"""Groups of commands, whose commands get their flags and help when they are called."""

from typing import Any

import typer
from typer.core import TyperGroup

from catro_deploy.cli.settings_flags import command_with_flags

__all__ = ["Group"]


class Group(TyperGroup):
    """A group whose commands have flags for settings, and help that fills the terminal."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override] # noqa: ANN401
        """The command that ``args`` name, with its flags for settings."""
        name, command, rest = super().resolve_command(ctx, args)
        command = command_with_flags(command)
        if command is not None and command.help:
            command.help = _unwrapped(command.help)
        return name, command, rest


def _unwrapped(text: str) -> str:
    """``text`` with each paragraph on one line: Typer keeps the line breaks of a docstring."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
