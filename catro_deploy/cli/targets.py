"""``targets list`` and ``targets show``."""

from typing import Annotated

import typer

from catro_deploy.cli.console import print_json, print_result
from catro_deploy.cli.flags import Json, examples

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The devices that networks are made for.")


@app.command("list", epilog=examples("targets list", "targets list --json"))
def list_(json: Json = False) -> None:
    """List the targets that come with catro-deploy."""
    from catro_deploy.targets import list_targets

    targets = list_targets()
    if json:
        print_json([target.model_dump(mode="json") for target in targets])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("target", "device", "runtime", "precision", "threads", "batch"):
        table.add_column(column)
    for t in targets:
        table.add_row(t.name, t.title, t.runtime, t.precision, str(t.threads), str(t.batch))
    print_result(table)


@app.command(epilog=examples("targets show x86-cpu"))
def show(
    target: Annotated[str, typer.Argument(help="A target's name, or the path of a TOML file of your own.")],
    json: Json = False,
) -> None:
    """Show what is known of a target, and where each figure comes from."""
    from catro_deploy.targets import load_target

    content = load_target(target).model_dump(mode="json")
    if json:
        print_json(content)
        return
    sources: dict[str, str] = content.pop("sources")
    for key, value in content.items():
        print_result(f"{key}: {str(value).strip()}")
        if key in sources:
            print_result(f"    {sources[key]}")
