"""Flags that stand for settings: one table, of which every command takes the part that makes sense for it."""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import typer

__all__ = [
    "BENCH",
    "DATA",
    "EXPORT",
    "FINETUNE",
    "MODEL",
    "PRECISION",
    "PROFILE",
    "PRUNE",
    "QUANTIZE",
    "RUN",
    "TRAIN",
    "USE",
    "VERIFY",
    "Config",
    "Flag",
    "Flags",
    "Force",
    "Json",
    "Keep",
    "NewRun",
    "Run",
    "examples",
    "split_names",
    "with_flags",
]

Flags = dict[str, dict[str, Any]]
"""Section to key to value, as ``load_settings`` takes it; None where the flag was not given."""

Config = Annotated[
    Path | None,
    typer.Option(help="Settings file; default: catro.toml here, if there is one.", show_default=False),
]
Run = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Run folder; default: the newest below runs/.", show_default=False),
]
NewRun = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Run folder; default: one below runs/ for these settings.", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Run again even if nothing has changed.")]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep earlier results that would be replaced: use a new run folder beside.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]


@dataclass(frozen=True)
class Flag:
    """One flag and the settings it sets, as ``section.key``."""

    name: str
    type: Any
    help: str
    settings: tuple[str, ...]
    panel: str

    @property
    def parameter(self) -> inspect.Parameter:
        """The flag as a parameter of a Typer command; not given means None."""
        word = self.name.replace("_", "-")
        declaration = f"--{word}/--no-{word}" if self.type is bool else f"--{word}"
        option = typer.Option(declaration, help=self.help, rich_help_panel=self.panel, show_default=False)
        annotation: Any = Annotated[Optional[self.type], option]  # noqa: UP045 - of a value, not of a name
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _section(section: str, panel: str, *flags: tuple[str, Any, str]) -> tuple[Flag, ...]:
    return tuple(Flag(name, kind, text, (f"{section}.{name}",), panel) for name, kind, text in flags)


MODEL = _section(
    "model",
    "Model and data",
    ("name", str, "cifar_resnet{20,32,56,110}, torchvision:NAME, timm:NAME or package.module:factory."),
    ("checkpoint", Path, "The trained weights: safetensors, or a torch file of tensors only."),
)
MODEL = (replace(MODEL[0], name="model"), MODEL[1])
DATA = (
    Flag("data", str, "gtsrb, imagefolder, signs or package.module:factory.", ("data.name",), "Model and data"),
    Flag("data_root", Path, "The folder that holds the images.", ("data.root",), "Model and data"),
    Flag("size", int, "Images are resized to this height and width.", ("data.size",), "Model and data"),
    Flag(
        "download",
        bool,
        "Fetch the images if they are not there (gtsrb).",
        ("data.download",),
        "Model and data",
    ),
)
PRUNE = _section(
    "prune",
    "Pruning",
    ("target", str, "What the network runs on: see catro-deploy targets list."),
    ("device", str, "Which of your devices that is: see catro-deploy device list; default: this machine."),
    ("classes", list[str], "A group, class names or indices, in the order of the outputs; default: all."),
    ("budget", str, "What may be used: 0.5x or 400us of latency on the target, or 50%flops; auto: run searches it."),
    ("criterion", Literal["catro", "obs", "l1"], "What makes a channel worth keeping."),
    ("reconstruct", bool, "Whether all layers are solved again for the original's feature maps."),
    ("allocation", Literal["auto", "exact", "greedy", "flops", "uniform"], "How many channels each layer gets."),
    ("depth", Literal["auto", "never"], "Whether residual branches may be removed."),
    ("prune_first", bool, "Whether the first convolution's channels may go."),
)
PRUNE += _section(
    "prune",
    "Pruning in detail",
    ("samples_per_class", int, "Training images of each class to choose channels by."),
    ("worth", Literal["auto", "measured", "scatter"], "How what a width is worth is found."),
    ("d_min", int, "No layer gets fewer channels."),
    ("step", int, "Channels added at a time."),
    ("max_width", float, "No layer keeps more than this share of its channels."),
    ("temperature", float, "Of the channels' scores."),
    ("activation_memory", float, "GiB of feature maps in memory; more goes to a file."),
    ("ignore", list[str], "Modules that keep all channels, with commas or repeated."),
    ("seed", int, "Seed of everything random."),
)


def _optimiser(section: str, panel: str, epochs: str) -> tuple[Flag, ...]:
    return _section(
        section,
        panel,
        ("epochs", int, epochs),
        ("batch_size", int, "Images a step."),
        ("learning_rate", float, "The highest of the schedule."),
        ("schedule", Literal["cosine", "step"], "How the learning rate falls."),
        ("ema", float, "Decay of the moving average of weights; 0: none."),
        ("patience", int, "Epochs without a better validation accuracy that end it; default: never."),
        ("compute", Literal["auto", "cpu", "cuda"], "Where: auto is the GPU if PyTorch sees one."),
        ("compile", bool, "Use torch.compile; needs a C++ compiler."),
    )


TRAIN = (
    *_optimiser("train", "Training", "Passes over the training images."),
    *_section(
        "train",
        "Training",
        ("recipe", Literal["none", "paper"], "A recipe, over what the file says: the paper's 300 epochs."),
        ("seed", int, "Of everything random."),
    ),
)
FINETUNE = (
    *_optimiser("finetune", "Fine-tuning", "Passes over the training images; 0: no training."),
    *_section("finetune", "Fine-tuning", ("distill", float, "Weight of the unpruned network's answers in the loss.")),
    Flag(
        "finetune_recipe",
        Literal["auto", "gentle", "fast", "paper", "none"],
        "A recipe, over what the file says: low rates, 60 epochs with distillation, or the paper's 200.",
        ("finetune.recipe",),
        "Fine-tuning",
    ),
)
EXPORT = _section(
    "export",
    "Export",
    ("opset", int, "ONNX operator set."),
    ("dynamic_batch", bool, "Let the runtime choose the batch size."),
)
PRECISION = _section(
    "quantize",
    "Precision",
    (
        "precision",
        Literal["target", "fp32", "fp16", "int8", "auto"],
        "Number format: auto takes the fastest that keeps the accuracy; default: the target's own.",
    ),
    ("recipe", str, "How to quantise: a file of calibration/int8, or a run's calibration.toml."),
    ("qat_epochs", int, "Of fine-tuning for integers, if they cost too much accuracy; default: none."),
)
QUANTIZE = (*PRECISION, *_section("quantize", "Precision", ("max_drop", float, "Points of accuracy that it may cost.")))
BUILD = _section(
    "build",
    "Engines",
    ("level", int, "Of optimisation, 0 to 5: higher builds longer and runs faster."),
    ("workspace_mib", int, "Scratch memory that an engine may use; default: what the GPU has."),
    ("dla", int, "Core of the deep learning accelerator; default: the GPU."),
    ("rebuilds", int, "Build so often again, to report how far apart builds are."),
)
VERIFY = _section(
    "verify",
    "Verification",
    ("tolerance", float, "Largest difference of logits between PyTorch and the runtime."),
    ("max_drop", float, "Points of accuracy that may be lost; more ends with exit code 3."),
)
BENCH = _section(
    "bench",
    "Measuring",
    ("protocol", str, "How long to measure: quick, standard or thorough."),
    ("threads", int, "Threads of the runtime; default: the target's."),
    ("batch", int, "Images at a time; default: the target's."),
    ("transfers", bool, "Of a GPU: count copies to and from it."),
    ("cuda_graph", bool, "Of a GPU: launch an inference as one CUDA graph."),
)
PROFILE = (Flag("profile", str, "How long to time layers: quick or standard.", ("profile.protocol",), "Measuring"),)
USE = tuple(flag for flag in BENCH if flag.name in ("threads", "batch"))


def _everywhere(flag: Flag) -> Flag:
    """In a command of several stages, one processor and one seed serve pruning and fine-tuning."""
    both = {"compute": ("prune.compute", "finetune.compute"), "seed": ("prune.seed", "finetune.seed")}
    return replace(flag, settings=both.get(flag.name, flag.settings))


RUN = tuple(
    map(_everywhere, (*MODEL, *DATA, *PRUNE, *FINETUNE, *EXPORT, *PRECISION, *BUILD, *VERIFY, *BENCH, *PROFILE))
)


def split_names(texts: Sequence[str]) -> list[int | str]:
    """``["a,b", "3"]`` as ``["a", "b", 3]``: numbers are indices, but not those with leading zeros."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    return [int(name) if re.fullmatch(r"0|[1-9]\d*", name) else name for name in names]


def examples(*lines: str) -> str:
    """The epilog of a command's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  catro-deploy {line}" for line in lines)])


def with_flags(*table: Flag) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of ``table``; it gets their values as its keyword ``flags``."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [
            *(f.parameter for f in table),
            *(p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != "flags"),
        ]

        @functools.wraps(function)
        def command(**given: Any) -> None:  # noqa: ANN401 - Typer hands over values of every type
            values = {flag: given.pop(flag.name) for flag in table}
            function(flags=_by_section(values), **given)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _by_section(values: dict[Flag, Any]) -> Flags:
    flags: Flags = {}
    for flag, value in values.items():
        if flag.name == "classes":
            value = split_names(value or ()) or None
        if flag.name == "ignore":
            value = [str(name) for name in split_names(value or ())] or None
        for setting in flag.settings:
            section, key = setting.split(".")
            flags.setdefault(section, {})[key] = value
    return flags
