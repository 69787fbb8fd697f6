"""``sweep``: the matrix of targets, groups of classes, budgets and precisions, each cell a separate run."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from catro_deploy.cli import flags as f
from catro_deploy.cli import options as o
from catro_deploy.cli.console import make_progress, print_json, print_result
from catro_deploy.cli.settings_flags import Flags, with_flags
from catro_deploy.cli.without_effect import require_effect
from catro_deploy.cli.work import own_settings
from catro_deploy.runs.listing import RUNS

if TYPE_CHECKING:
    from catro_deploy.settings import Settings
    from catro_deploy.sweep.cells import Cell
    from catro_deploy.sweep.engine import Engine

__all__ = ["app"]

app = typer.Typer()

FILE = Path("sweep.toml")
AXES = ("target", "device", "classes", "budget", "precision")
SHARED = tuple(flag for flag in f.RUN if flag.name not in AXES)


def _axis(text: str) -> Any:  # noqa: ANN401 - Typer's own type
    return typer.Option(metavar="A,B,...", help=text, show_default=False, rich_help_panel="Matrix")


def _machines(text: str, **more: Any) -> Any:  # noqa: ANN401 - as above
    return typer.Option(help=text, rich_help_panel="Machines", **more)


File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="The matrix; default: sweep.toml here, if there is one.", show_default=False),
]
Targets = Annotated[list[str] | None, _axis("Targets, or your devices by name.")]
Classes = Annotated[
    list[str] | None, _axis("A group of classes; may be repeated: each is a separate group. all: every class.")
]
SweptBudgets = Annotated[list[str] | None, _axis("Budgets, as for run.")]
Precisions = Annotated[list[str] | None, _axis("Precisions, as for run.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder of the sweep; default: runs/ and the name of FILE.", show_default=False
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace results of cells whose settings have changed.")]
EngineName = Annotated[Literal["local", "ray"], _machines("What runs the cells.")]
Address = Annotated[str, _machines("Address of the Ray cluster; auto: the one that this machine is in.")]
Carry = Annotated[
    bool | None,
    typer.Option(
        "--carry/--no-carry",
        help="With ray: transfer run folders to the machines and back; default: only if they do not share them.",
        rich_help_panel="Machines",
        show_default=False,
    ),
]
Cpus = Annotated[int | None, _machines("Cores per cell; default: 4, or all if fewer.", min=1, show_default=False)]
Gpus = Annotated[
    float | None,
    _machines("GPUs per training, such as 0.5; default: 1, if there are any.", min=0, show_default=False),
]


@app.command(
    epilog=o.examples(
        "sweep",
        "sweep --targets x86-cpu,my-board --budgets 0.5x,0.3x --precisions fp32,int8",
        "sweep matrix.toml --engine ray",
        "sweep --classes speed_limits --classes stop,yield --budgets 0.5x --max-drop 1",
    )
)
@with_flags(*SHARED, first="model checkpoint data data_root epochs max_drop")
def sweep(
    flags: Flags,
    file: File = None,
    targets: Targets = None,
    classes: Classes = None,
    budgets: SweptBudgets = None,
    precisions: Precisions = None,
    config: o.Config = None,
    folder: Folder = None,
    replace: Replace = False,
    engine: EngineName = "local",
    address: Address = "auto",
    carry: Carry = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    json: o.Json = False,
) -> None:
    """Run every combination of targets, groups of classes, budgets and precisions; compare them on one page.

    Each cell is an ordinary run folder. Trainings run side by side as cores and memory allow; a measurement has its
    device to itself. A stopped sweep continues where it was; further values add cells. Exit code 3: a cell missed what
    was asked; 1: a cell failed.
    """
    from catro_deploy.cli.sweep_progress import make_watcher
    from catro_deploy.report.sweep import cells_table, sweep_words
    from catro_deploy.sweep.cells import settings_of
    from catro_deploy.sweep.matrix import load_matrix
    from catro_deploy.sweep.sweeping import SweepFolder
    from catro_deploy.sweep.sweeping import sweep as run_sweep

    file = file or (FILE if FILE.is_file() else None)
    axes = {"targets": targets, "budgets": budgets, "precisions": precisions}
    matrix = load_matrix(file, {axis: _split(values) for axis, values in axes.items()} | {"classes": classes or ()})
    place = SweepFolder(folder or RUNS / (file.stem if file else FILE.stem))
    settings_file = config or matrix.config

    def load(asked: Mapping[str, Mapping[str, Any]]) -> "Settings":
        return own_settings(settings_file, _merged(flags, asked))

    def open_engine(cells: "Sequence[Cell]") -> "Engine":
        asked = (cpus or matrix.cpus, matrix.gpus if gpus is None else gpus)
        if engine == "ray":
            from catro_deploy.sweep.ray_engine import ray_engine

            return ray_engine(cells, address, *asked, carry)
        from catro_deploy.sweep.local import local_engine

        return local_engine(cells, *asked)

    require_effect(flags, [settings_of(one, load) for one in matrix.combinations])
    with redirect_stdout(sys.stderr):  # Ray prints its own messages; stdout gets only the result
        record, problem = run_sweep(matrix, load, place, open_engine, make_watcher, make_progress(), replace=replace)
    if json:
        from catro_deploy.records.files import content_of

        print_json({"sweep": str(place.path), "page": str(place.page)} | content_of(record))
    else:
        from catro_deploy.cli.console import drawn

        print_result(drawn(cells_table(record)), sweep_words(record), f"Page: {place.page}")
    if problem:
        raise problem


def _split(texts: Sequence[str] | None) -> list[str]:
    return [part.strip() for text in texts or () for part in text.split(",") if part.strip()]


def _merged(flags: Flags, asked: Mapping[str, Mapping[str, Any]]) -> Flags:
    return {section: flags.get(section, {}) | dict(asked.get(section, {})) for section in {*flags, *asked}}
