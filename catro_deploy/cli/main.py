"""``catro-deploy``: the commands, and the one place where errors become messages and exit codes.

Exit codes: 0 done; 1 an internal error or a failure of the machine; 2 wrong usage or input; 3 the result misses a
requirement; 130, 143 and 129 stopped by Ctrl-C, SIGTERM and SIGHUP.
"""

import os
import sys
import traceback
from typing import Annotated, Any

import typer

from catro_deploy import __version__
from catro_deploy.cli import devices, doctor, init, runs, stages, sweep, targets
from catro_deploy.cli.console import say
from catro_deploy.cli.faults import as_catro_error
from catro_deploy.cli.groups import Group
from catro_deploy.cli.stopping import not_hidden, stop_on_signals
from catro_deploy.errors import CatroError

__all__ = ["app", "main"]

INTERRUPTED = 130


class Commands(Group):
    """The group that turns exceptions of its commands into messages."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Accept ``--debug`` at any position."""
        debug = [arg for arg in args if arg == "--debug"]
        return super().parse_args(ctx, [*debug[:1], *(arg for arg in args if arg != "--debug")])

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override] # noqa: ANN401 - Typer's own type
        """Run a command."""
        try:
            with not_hidden():
                return super().invoke(ctx)
        except (typer.TyperException, typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt as stopped:
            say("\nStopped. What is finished is kept: the same command continues from there.")
            raise typer.Exit(getattr(stopped, "exit_code", INTERRUPTED)) from None
        except Exception as error:
            raise typer.Exit(_explain(error, debug=ctx.params["debug"])) from None


def _explain(error: Exception, *, debug: bool) -> int:
    known = as_catro_error(error)
    if debug:
        traceback.print_exception(error)
    say(f"{known.problem}", style="bold red")
    if known.hint:
        say(known.hint)
    return known.exit_code


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="[bold]Start here[/bold]\n\n"
    "  catro-deploy init --demo\n\n"
    "  catro-deploy run --target x86-cpu --classes speed_limits --budget 0.5x",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"catro-deploy {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", envvar="CATRO_DEBUG", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Prune an image classifier for the device that must run it, and prove what it gained.

    Settings come from flags, then from catro.toml here, then from defaults. [bold]run[/bold] does everything;
    prune, finetune, export, verify, bench and report are its steps, and each continues the newest run.

    Exit codes: 0 done, 1 an internal error or a failure of a device, disk or runtime, 2 wrong usage or input, 3 the
    result misses a requirement.
    """


for group in (init.app, stages.app, sweep.app, doctor.app):
    app.add_typer(group)
app.add_typer(targets.app, name="targets")
app.add_typer(devices.app, name="device")
app.add_typer(runs.app, name="runs")


def _first_of_all() -> None:
    """Run the command in the first process that torchrun has started; the others take part in its trainings."""
    from catro_deploy.training.together import dismiss, serve
    from catro_deploy.training.world import require_torchrun

    try:
        require_torchrun()
    except CatroError as error:
        sys.exit(_explain(error, debug=False))
    if int(os.environ["RANK"]) == 0:
        try:
            app()
        finally:
            dismiss()
        return
    try:
        with not_hidden():
            sys.exit(serve())
    except KeyboardInterrupt as stopped:
        sys.exit(getattr(stopped, "exit_code", INTERRUPTED))
    except Exception as error:
        sys.exit(_explain(error, debug=bool(os.environ.get("CATRO_DEBUG"))))


def main() -> None:
    """Run the command line of this process."""
    stop_on_signals()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - for as long as the process lives
    try:
        _first_of_all() if os.environ.get("TORCHELASTIC_RUN_ID") else app()
    except BrokenPipeError:
        # The reader is gone. Redirect stdout, or Python reports the error again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
