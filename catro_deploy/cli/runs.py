"""``runs list``, ``runs show``, ``runs compare`` and ``runs remove``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catro_deploy.cli.console import drawn, print_json, print_result
from catro_deploy.cli.groups import Group
from catro_deploy.cli.options import Json, examples
from catro_deploy.errors import CatroError
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.listing import RUNS, find_run, remove_run, require_removable, run_folders
from catro_deploy.units import counted

if TYPE_CHECKING:
    from catro_deploy.records.overview import Overview

__all__ = ["app"]

app = typer.Typer(cls=Group, no_args_is_help=True, help="Run folders: list, show, compare and remove them.")

Name = Annotated[
    str, typer.Argument(metavar="RUN", help="A run folder, its name below runs/, or a part of it.", show_default=False)
]


@app.command("list", epilog=examples("runs list", "runs list --json"))
def list_(json: Json = False) -> None:
    """List the run folders below runs/, the newest first."""
    runs = [(run, _overview(run)) for run in run_folders(RUNS)]
    if json:
        print_json([_listed(run, found) for run, found in runs])
    elif runs:
        print_result(*_list(runs))
    else:
        print_result(f"There are no run folders in {RUNS.absolute()}. Start one: catro-deploy run")


@app.command(epilog=examples("runs show", "runs show 1a2b3c4d"))
def show(
    name: Annotated[str | None, typer.Argument(metavar="RUN", help="Default: the newest.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Show the figures of one run, and where its report is."""
    from catro_deploy.report.overview import overview
    from catro_deploy.runs.listing import newest_run

    run = find_run(name, RUNS) if name else newest_run(RUNS)
    found = overview(run)
    if json:
        print_json({"run": str(run.path)} | asdict(found))
        return
    from catro_deploy.report.comparison import overview_table

    print_result(str(run.path), drawn(overview_table(found)))
    if found.stage == "report":
        print_result(f"Report: {run.report('html')}")


@app.command(epilog=examples("runs compare 1a2b3c4d 5e6f7a8b", "runs compare tram tram-2 --html tram.html"))
def compare(
    first: Name,
    second: Name,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Path of the page; default: below runs/.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Show two runs side by side, and the settings that differ; also written as one HTML page."""
    from catro_deploy.files import write_text
    from catro_deploy.report import comparison as c

    runs = [find_run(name, RUNS) for name in (first, second)]
    found = c.compare(*runs)
    page = html or RUNS / c.page_name(found)
    if json:
        write_text(page, c.comparison_page(found))
        print_json(asdict(found) | {"page": str(page)})
        return
    differences = drawn(c.settings_table(found))
    print_result(c.comparison_words(found), drawn(c.comparison_table(found.earlier, found.this)), differences)
    write_text(page, c.comparison_page(found))  # last, since another user's folder may not be writable
    print_result(f"Page: {page}")


@app.command(epilog=examples("runs remove 1a2b3c4d", "runs remove runs/tram --yes"))
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a run folder and everything in it. Links in it are deleted, not what they point to."""
    run = find_run(name, RUNS)
    require_removable(run)
    if not yes:
        files = [path for path in run.path.rglob("*") if path.is_file()]
        size = sum(path.lstat().st_size for path in files) / 2**20
        typer.confirm(f"Delete {run.path} ({counted(len(files), 'file')}, {size:.1f} MiB)?", abort=True, err=True)
    remove_run(run)
    print_result(f"Removed {run.path}.")


def _overview(run: RunFolder) -> "Overview | CatroError":
    """The overview of ``run``, or the error of a damaged run."""
    from catro_deploy.report.overview import overview

    try:
        return overview(run)
    except CatroError as error:
        return error


def _listed(run: RunFolder, found: "Overview | CatroError") -> dict[str, Any]:
    if isinstance(found, CatroError):
        return {"run": str(run.path), "name": run.path.name, "problem": found.problem}
    return {"run": str(run.path), "problem": None} | asdict(found)


def _list(runs: "list[tuple[RunFolder, Overview | CatroError]]") -> list[Any]:
    from catro_deploy.report.comparison import list_table

    damaged = [f"{run.path.name}: {found.problem}" for run, found in runs if isinstance(found, CatroError)]
    return [drawn(list_table([found for _, found in runs if not isinstance(found, CatroError)])), *damaged]
