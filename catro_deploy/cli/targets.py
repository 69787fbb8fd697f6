"""``targets list``, ``targets show`` and ``targets add``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catro_deploy import resources
from catro_deploy.cli.console import print_json, print_result, say
from catro_deploy.cli.groups import Group
from catro_deploy.cli.options import Json, examples
from catro_deploy.errors import TargetError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from catro_deploy.latency.profile.store import LatencyProfile
    from catro_deploy.targets import GpuFigures, Target

__all__ = ["app"]

app = typer.Typer(cls=Group, no_args_is_help=True, help="The kinds of devices that networks are pruned for.")


@app.command("list", epilog=examples("targets list", "targets list --json"))
def list_(json: Json = False) -> None:
    """List the targets that come with catro-deploy, and your own."""
    from catro_deploy.targets import load_target

    targets, wrong = [], []
    for name in resources.names("targets"):
        try:
            targets.append(load_target(name))
        except TargetError as error:  # one bad file must not hide the others
            wrong.append(error.problem)
    if json:
        print_json([target.model_dump(mode="json") | _where(target.name) for target in targets])
    else:
        _print_list(targets)
    for problem in wrong:
        say(f"Left out: {problem}", style="bold red")


@app.command(epilog=examples("targets show x86-cpu", "targets show jetson-orin"))
def show(
    target: Annotated[str, typer.Argument(help="A target's name, or the path of a TOML file of your own.")],
    json: Json = False,
) -> None:
    """Show the figures of a target, and the source of each."""
    from catro_deploy.cli.profiles import profile_json
    from catro_deploy.targets import load_target
    from catro_deploy.transports.reach import profilable, reachable

    found = load_target(target)
    where = _where(target)
    reach = reachable(found)
    peaks = _peaks(found.gpu) if found.gpu else {}
    profiles, damaged = _profiles(found.name)
    if json:
        measured = [profile_json(profile, folder) for folder, profile in profiles]
        extra = {"measurable_here": reach, "peak_flops": peaks, "profiles": measured, "damaged_profiles": damaged}
        print_json(found.model_dump(mode="json") | where | extra)
        return
    print_result(f"{found.name}: {found.title}")
    typer.echo(f"from: {_origin(where)}, {where['file']}")  # never wrapped, so that the path can be copied
    print_result(f"kind: {found.kind}", f"runtime: {found.runtime}", f"transport: {found.transport}")
    print_result(f"measuring: {_measuring(found, reach)}")
    _print_figures(found)
    _print_profiles(profiles, damaged, reach and profilable(found))
    for precision, peak in peaks.items():
        print_result(f"peak {precision}: {peak / 1e12:.2f}e12 operations/s, computed: SMs x operations/clock x clock")
    if found.notes:
        print_result("notes:", _indented(found.notes))


@app.command(epilog=examples("targets add my-board.toml", "targets add my-board.toml --name press-3 --force"))
def add(
    file: Annotated[Path, typer.Argument(help="A TOML file that describes a device.")],
    name: Annotated[
        str | None, typer.Option(help="The target's name; default: the file's.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a target of yours that has this name.")] = False,
    json: Json = False,
) -> None:
    """Check and register your own target, so that --target and the other commands know its name."""
    from catro_deploy.targets import add_target

    added = add_target(file, name, force=force)
    where = _where(added.stem)
    if json:
        print_json({"name": added.stem} | where)
        return
    typer.echo(f"Added {added.stem}: {added}")
    if where["shadows_shipped"]:
        say(f"It replaces the {added.stem} that comes with catro-deploy.")


def _measuring(target: "Target", here: bool) -> str:
    """Where networks for ``target`` can be measured."""
    from catro_deploy.transports.reach import reachable
    from catro_deploy.transports.registry import load_devices

    fitting = [device.name for device in load_devices().values() if device.target_name == target.name]
    places = [*(["this machine"] if here else []), *(f"your device {name}" for name in fitting)]
    if places:
        return f"on {' or '.join(places)}"
    if reachable(target, "any"):
        return f"on a device of yours: catro-deploy device add NAME --ssh USER@HOST --target {target.name}"
    return "not possible: estimates only" if target.transport == "none" else "not in this version"


def _profiles(target: str) -> "tuple[list[tuple[Path, LatencyProfile]], list[str]]":
    """The profiles that were measured for ``target``, and what is wrong with those that cannot be used."""
    if not any(resources.profiles_folder().glob(f"{target}-*")):
        return [], []  # spares the import of torch
    from catro_deploy.latency.profile.store import damaged_profiles, profiles_of

    return list(profiles_of(target)), [error.problem for error in damaged_profiles(target)]


def _where(name_or_path: str) -> dict[str, Any]:
    path = resources.find("targets", name_or_path)
    origin = resources.origin("targets", path)
    shadows = origin == "yours" and (resources.folder("targets") / path.name).is_file()
    return {"origin": origin, "file": str(path), "shadows_shipped": shadows}


def _origin(where: dict[str, Any]) -> str:
    return f"{where['origin']}, shadows shipped" if where["shadows_shipped"] else str(where["origin"])


def _peaks(gpu: "GpuFigures") -> dict[str, float]:
    return {precision: gpu.peak_flops(precision) for precision in ("fp32", "fp16", "int8")}


def _print_figures(target: "Target") -> None:
    for figure, value in target.figures.items():
        number = f"{value:g}" if isinstance(value, float) else value
        print_result(f"{figure}: {number}", _indented(target.sources[figure]))


def _print_profiles(profiles: "list[tuple[Path, LatencyProfile]]", damaged: Sequence[str], reach: bool) -> None:
    from catro_deploy.cli.profiles import summary

    for folder, profile in profiles:
        print_result("latency profile, measured:", *(_indented(line) for line in summary(profile)))
        typer.echo(f"    {folder}")
    for problem in damaged:
        print_result("latency profile that cannot be used; catro-deploy profile --force measures it again:")
        typer.echo(f"    {problem}")
    if not profiles and not damaged:
        yet = "none yet; catro-deploy profile measures one"
        print_result(f"latency profile: {yet if reach else 'none: layer times are estimated from the figures'}")


def _indented(text: str) -> "RenderableType":
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(" ".join(text.split())), (0, 0, 0, 4), expand=False)


def _print_list(targets: list["Target"]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("target", "device", "kind", "runtime", "precision", "from"):
        table.add_column(column)
    for t in targets:
        table.add_row(t.name, t.title, t.kind, t.runtime, t.precision, _origin(_where(t.name)))
    print_result(table)
