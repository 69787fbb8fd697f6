"""``init``: a commented ``catro.toml`` to start from."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catro_deploy.cli.console import print_result
from catro_deploy.cli.options import examples
from catro_deploy.errors import SettingsError

if TYPE_CHECKING:
    from catro_deploy.settings.catalog import Setting

__all__ = ["app", "every_key"]

app = typer.Typer()

FILE = Path("catro.toml")

HEAD = """\
# Settings of catro-deploy. Flags override this file, this file overrides the defaults.
# Relative paths start at this file's folder. Every key with its default: catro-deploy init --print

"""

OWN = f"""\
{HEAD}[model]
name = "cifar_resnet20"         # or torchvision:resnet50, timm:NAME, transformers:FOLDER, package.module:factory
checkpoint = "model.pth"        # your trained weights: safetensors, or a torch file of tensors only
mean = [0.485, 0.456, 0.406]    # as in your training: subtracted from pixels in 0..1,
std = [0.229, 0.224, 0.225]     # then divided by

[data]
name = "imagefolder"            # train/ and val/ (or test/) of class folders; images: without labels
root = "data"
# size = 64                     # images are resized to this height and width, as in your training; default: that of
                                # the images if all have the same, else the size that torchvision or timm trained at
# groups = {{mine = ["first class", "second class"]}}    # your own names for sets of classes

[prune]
target = "x86-cpu"              # catro-deploy targets list
classes = []                    # a group, class names or indices; empty: all classes
budget = "0.5x"                 # of the original's latency, measured; or 400us; or 50%flops
# reconstruct = false           # the paper's method: layers are not refitted after the cut
# criterion = "obs"             # keeps what the next layers need, whatever the class; needs no labels

[finetune]
epochs = 40                     # 0: no training; the network stays as reconstructed by pruning
augment = "objects"             # objects: shift, mirror, light; signs: never mirrored; rigid: shift; none
# recipe = "fast"               # default: gentle, low learning rates, for networks that were reconstructed

[verify]
# max_drop = 1.0                # points of accuracy that may be lost; more ends with exit code 3
"""

DEMO = f"""\
{HEAD}[model]
name = "cifar_resnet20"
checkpoint = "baseline.safetensors"   # `catro-deploy run` trains it first, as [train] says
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]

[data]
name = "signs"                  # traffic signs that catro-deploy draws itself
root = "data"

[train]
epochs = 4
batch_size = 32                 # many steps in few epochs
learning_rate = 0.05

[prune]
target = "x86-cpu"
classes = ["speed_limits"]      # a group of this data set
budget = "0.5x"                 # of the original's latency, measured; or 400us; or 50%flops

[finetune]
epochs = 4                      # few are enough: pruning reconstructs the layers; 0: no training
batch_size = 64
distill = 0.0                   # labels only: after such a short [train], the original's outputs teach less

[verify]
max_drop = 1.0                  # points of accuracy that may be lost; more ends with exit code 3

[profile]
protocol = "quick"              # the default, standard, takes a minute longer and is more accurate

[bench]
protocol = "quick"
"""


PRUNING = """\
[prune]
target = "x86-cpu"              # catro-deploy targets list
budget = "0.5x"                 # of the original's latency, measured; or 400us; or 50%flops

[finetune]
epochs = 2                      # 0: no training; the network stays as reconstructed by pruning
"""
MIRRORED = """\
augment = "objects"             # shift, mirror, light; signs: never mirrored; photos: random crops, for long trainings
"""


@app.command(
    epilog=examples("init", "init --demo", "init --model torchvision:resnet50 --data-root photos", "init --print")
)
def init(
    model: Annotated[
        str,
        typer.Option(
            help="Inspect this network: torchvision:NAME, timm:NAME, transformers:FOLDER or package.module:factory."
        ),
    ] = "",
    data_root: Annotated[Path | None, typer.Option(help="Inspect the images in this folder.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Weights of the network; default: its library's.")] = None,
    weights: Annotated[str | None, typer.Option(help="Which weights of its library, such as IMAGENET1K_V2.")] = None,
    size: Annotated[str | None, typer.Option(help="Height and width that the network gets: 64, or 160x224.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="For generated traffic signs: runs without changes.")] = False,
    show: Annotated[bool, typer.Option("--print", help="Print every key with its default; write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite catro.toml.")] = False,
) -> None:
    """Write a commented catro.toml into this folder."""
    from catro_deploy.files import write_text

    if show:
        typer.echo("\n".join(every_key()))
        return
    if FILE.exists() and not force:
        raise SettingsError(f"{FILE.absolute()} exists already.", "Overwrite it: catro-deploy init --force")
    if model or data_root:
        print_result(*_write_for(model, data_root, checkpoint, weights, size))
        return
    write_text(FILE, DEMO if demo else OWN)
    if demo:
        print_result(f"{FILE} is written. Next: catro-deploy run")
    else:
        print_result(
            f"{FILE} is written. Put your model and data into it, then:",
            "catro-deploy run --target x86-cpu --budget 0.5x",
        )


def _write_for(
    model: str, root: Path | None, checkpoint: Path | None, weights: str | None, size: str | None
) -> Iterator[str]:
    """Write settings for an existing network and images; list what was assumed."""
    from catro_deploy.files import write_text
    from catro_deploy.stages.starting import start_from
    from catro_deploy.toml import toml_tables

    if not model or root is None:
        raise SettingsError("--model and --data-root are used together: both are inspected.", "Give both, or neither.")
    start = start_from(model, checkpoint, weights, root, size)
    lines = [f"# {assumed}\n" for assumed in start.assumed]
    pruning = PRUNING + MIRRORED if start.mirrors else PRUNING
    write_text(FILE, f"{HEAD}{''.join(lines)}\n{toml_tables(start.sections)}\n{pruning}")
    yield f"{FILE} is written. It assumes:"
    yield from (f"- {assumed}" for assumed in start.assumed)
    yield "Correct it where that is wrong, then: catro-deploy run"


def every_key() -> Iterator[str]:
    """Lines of a ``catro.toml`` with every setting's default and description."""
    from catro_deploy.settings import Settings
    from catro_deploy.settings.catalog import section_settings

    yield "# Every setting with its default."
    for name, field in Settings.model_fields.items():
        optional = field.default is None
        yield ""
        if optional:
            yield "# Without this section no baseline is trained."
        yield f"{'# ' if optional else ''}[{name}]"
        for setting in section_settings(name).values():
            yield _line(setting, hidden=optional)


def _line(setting: "Setting", *, hidden: bool) -> str:
    from catro_deploy.toml import toml_value

    key, value = setting.name, setting.default
    line = f"# {key} =" if value is None else f"{'# ' if hidden else ''}{key} = {toml_value(value)}"
    description = "; ".join(filter(None, [" | ".join(setting.choices), setting.help, setting.limits]))
    return f"{line:<40}# {description}"
