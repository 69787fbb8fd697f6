"""``device add``, ``device list``, ``device check`` and ``device remove``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from catro_deploy.cli.console import make_progress, print_json, print_result
from catro_deploy.cli.groups import Group
from catro_deploy.cli.options import Json, examples
from catro_deploy.errors import TargetError

if TYPE_CHECKING:
    from catro_deploy.transports.registry import Device

__all__ = ["app"]

app = typer.Typer(cls=Group, no_args_is_help=True, help="Your own computers that networks run on, reached by ssh.")

TO_WRITE = {
    "ssh": "Write USER@HOST, or a name of ~/.ssh/config.",
    "python": "Name a command or a path on the device; or leave --python out: python3",
    "folder": "Name a folder on the device; or leave --folder out: .cache/catro-deploy",
}


def _value(text: str) -> Any:  # noqa: ANN401 - Typer's own type
    return typer.Option(help=text, show_default=False)


Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)]


@app.command(
    epilog=examples(
        "device add press-3 --ssh press-3.local --target x86-cpu",
        "device add van --ssh ubuntu@10.0.0.7 --target my-box.toml --python venv/bin/python",
    )
)
def add(
    name: Name,
    ssh: Annotated[
        str | None,
        _value(
            "Its address, as for the ssh command: USER@HOST, or a name of ~/.ssh/config; required for a new device."
        ),
    ] = None,
    target: Annotated[
        str | None, _value("Its target: see catro-deploy targets list; required for a new device.")
    ] = None,
    python: Annotated[
        str | None, _value("Python 3.8 or later there, with numpy and the target's runtime; default: python3.")
    ] = None,
    folder: Annotated[
        str | None, _value("Folder for models there, relative to that user's home; default: .cache/catro-deploy.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Change a device of yours that has this name; other values stay.")
    ] = False,
) -> None:
    """Register a device, so that --device NAME finds it."""
    from pathlib import Path

    from pydantic import ValidationError

    from catro_deploy.resources import is_path
    from catro_deploy.targets import load_target
    from catro_deploy.transports.reach import require_reachable
    from catro_deploy.transports.registry import Device, add_device, load_devices

    given = {"ssh": ssh, "target": target, "python": python, "folder": folder}
    values = {key: value for key, value in given.items() if value is not None}
    if earlier := load_devices().get(name):
        values = earlier.model_dump(exclude={"name"}) | values
    if lacking := [f"--{key} {key.upper()}" for key in ("ssh", "target") if key not in values]:
        problem = f"You have no device {name!r} yet, so its {' and '.join(lacking)} must be given."
        raise TargetError(problem, f"catro-deploy device add {name} --ssh USER@HOST --target TARGET")
    require_reachable(load_target(values["target"]), name, "device add")
    if is_path(values["target"]):  # the device is also used from other folders
        values["target"] = Path(values["target"]).absolute().as_posix()
    try:
        device = Device(name=name, **values)
    except ValidationError as error:
        first = error.errors()[0]
        flag = str(first["loc"][0])
        raise TargetError(f"{first['input']!r} cannot be a device's {flag}.", TO_WRITE.get(flag, "")) from None
    path = add_device(device, force=force)
    typer.echo(f"Added {name} to {path}")
    print_result(f"Try it: catro-deploy device check {name}")


@app.command("list", epilog=examples("device list", "device list --json"))
def list_(json: Json = False) -> None:
    """List your devices."""
    from catro_deploy.transports.registry import load_devices

    devices = load_devices()
    if json:
        print_json([device.model_dump() for device in devices.values()])
    elif devices:
        _print_list(list(devices.values()))
    else:
        print_result("None yet. Add one: catro-deploy device add NAME --ssh USER@HOST --target TARGET")


@app.command(epilog=examples("device check press-3", "device check press-3 --json"))
def check(name: Name, json: Json = False) -> None:
    """Log in, send the agent there, try the target's runtime, and show what the device is."""
    from pathlib import Path

    from catro_deploy.agent.jobs import FactsJob
    from catro_deploy.agent.results import facts_record
    from catro_deploy.targets import load_target
    from catro_deploy.transports import run_job
    from catro_deploy.transports.registry import find_device

    device = find_device(name)
    found = run_job(name, FactsJob(load_target(device.target).runtime), Path(), (), note=make_progress().note)
    facts = facts_record(found)
    if json:
        print_json(device.model_dump() | {"facts": facts})
        return
    print_result(f"{name} ({device.ssh}) works.")
    print_result(*(f"  {key.replace('_', ' ')}: {_shown(value)}" for key, value in facts.items() if value is not None))


@app.command(epilog=examples("device remove press-3"))
def remove(name: Name) -> None:
    """Unregister a device; its files stay."""
    from catro_deploy.transports.registry import remove_device

    remove_device(name)
    print_result(f"Removed {name}.")


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _print_list(devices: list["Device"]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("device", "target", "ssh", "python", "folder"):
        table.add_column(column)
    for d in devices:
        table.add_row(d.name, d.target, d.ssh, d.python, d.folder)
    print_result(table)
