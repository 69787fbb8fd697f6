"""Options that commands share, besides the flags for settings."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Config", "Force", "Json", "Keep", "NewRun", "Run", "examples"]


def _path(text: str) -> Path:
    """``text`` as a path; empty text, often a shell variable that is not set, would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("it is empty; give a path, or leave it out.")
    return Path(text)


Config = Annotated[
    Path | None,
    typer.Option(
        parser=_path,
        metavar="PATH",
        help="Settings file; default: catro.toml here, if there is one.",
        show_default=False,
    ),
]
Run = Annotated[
    Path | None,
    typer.Option(
        parser=_path, metavar="FOLDER", help="Run folder; default: the newest below runs/.", show_default=False
    ),
]
NewRun = Annotated[
    Path | None,
    typer.Option(
        parser=_path,
        metavar="FOLDER",
        help="Run folder; default: one below runs/ for these settings.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Run again even if nothing has changed.")]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep earlier results that would be replaced: use a new run folder.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]


def examples(*lines: str) -> str:
    """The epilog of a command's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  catro-deploy {line}" for line in lines)])
