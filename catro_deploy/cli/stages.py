"""``train``, ``profile`` and the stages from the pruning on, each a command; ``run``, all of the stages."""

from pathlib import Path
from typing import Annotated

import typer

from catro_deploy.cli import flags as f
from catro_deploy.cli.console import make_progress, print_json, print_result
from catro_deploy.cli.work import (
    continue_run,
    export_run,
    own_settings,
    quantize_run,
    settings_to_continue,
    start_run,
    work,
)

__all__ = ["app"]

app = typer.Typer()

ALL = ("search", "prune", "finetune", "export", "quantize", "build", "verify", "bench", "ship", "report")


@app.command(epilog=f.examples("train", "train --epochs 20 --checkpoint baseline.safetensors"))
@f.with_flags(*f.MODEL, *f.DATA, *f.TRAIN)
def train(flags: f.Flags, config: f.Config = None) -> None:
    """Train a baseline from nothing into \\[model] checkpoint, if you have no trained model.

    A file that is there is never overwritten. Goes on from the last epoch if it was stopped.
    """
    from catro_deploy.pipeline import train_checkpoint
    from catro_deploy.settings import TrainSettings

    settings = own_settings(config, flags)
    if settings.train is None:
        settings = settings.model_copy(update={"train": TrainSettings()})
    train_checkpoint(settings, make_progress())
    print_result(f"Trained: {settings.model.checkpoint}")


@app.command(epilog=f.examples("profile --target x86-cpu", "profile --profile quick --force"))
@f.with_flags(*f.MODEL, *f.DATA, *f.PRUNE[:3], *f.PRECISION[:1], *f.PROFILE, *f.USE)
def profile(flags: f.Flags, config: f.Config = None, force: f.Force = False, json: f.Json = False) -> None:
    """Time the network's layers on the target, at the widths that pruning may give them.

    prune does this by itself where there is no profile that fits. What was measured is kept for this network on this
    device; a measurement that was stopped goes on where it was.
    """
    from catro_deploy.cli.profiles import profile_json, show_profile
    from catro_deploy.pipeline import with_target_of_device
    from catro_deploy.stages.profile import profile as measure

    found = measure(with_target_of_device(own_settings(config, flags)), make_progress(), force=force)
    if json:
        print_json(profile_json(found))
    else:
        print_result(*show_profile(found))


@app.command(
    epilog=f.examples("prune --target x86-cpu --classes speed_limits", "prune --classes 1,2,5 --budget 9.25%flops")
)
@f.with_flags(*f.MODEL, *f.DATA, *f.PRUNE, *f.PRECISION[:1], *f.PROFILE, *f.USE)
def prune(
    flags: f.Flags,
    config: f.Config = None,
    run: f.NewRun = None,
    force: f.Force = False,
    json: f.Json = False,
) -> None:
    """Choose the channels that stay, and cut the others out."""
    start_run(("prune",), flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("finetune", "finetune --epochs 60 --distill 0.5 --run runs/tram"))
@f.with_flags(*(flag for flag in f.DATA if flag.name == "data_root"), *f.FINETUNE)
def finetune(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Give the pruned network its accuracy back. Goes on from the last epoch if it was stopped."""
    continue_run("finetune", flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("export", "export --dynamic-batch --opset 18"))
@f.with_flags(*f.EXPORT)
def export(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Write original.onnx and pruned.onnx, and for targets that run in fp16 both in half precision, too.

    For a target with TensorRT, engines are then built and checked on your device of that target (device add); if you
    have none, a bundle to carry there is written.
    """
    export_run(flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("quantize", "quantize --precision int8 --max-drop 0.2"))
@f.with_flags(*(flag for flag in f.DATA if flag.name == "data_root"), *f.QUANTIZE)
def quantize(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Find the number format that is fastest on the device and keeps the accuracy. Exit code 3: not the one asked for.

    Without --precision all are tried. What is found is served from then on: verify, bench and report go by it.
    """
    quantize_run(flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("build", "build --level 5 --rebuilds 3"))
@f.with_flags(*f.BUILD)
def build(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Build TensorRT engines of both networks, on the device that will run them."""
    continue_run("build", flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("verify", "verify --max-drop 0.5"))
@f.with_flags(*(flag for flag in f.DATA if flag.name == "data_root"), *f.VERIFY)
def verify(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Test accuracy of both networks, in PyTorch and in the runtime. Exit code 3: less than was asked."""
    continue_run("verify", flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("bench", "bench --protocol thorough --threads 4"))
@f.with_flags(*f.BENCH)
def bench(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Measure both networks on the device, in turns."""
    continue_run("bench", flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("bundle", "bundle --run runs/tram"))
@f.with_flags(*(flag for flag in f.DATA if flag.name == "data_root"), *f.BENCH)
def bundle(flags: f.Flags, config: f.Config = None, run: f.Run = None) -> None:
    """Pack all that a device needs which cannot be reached from here; import reads back what it finds."""
    from catro_deploy.stages.bundle import bundle as pack

    settings, folder = settings_to_continue("bench", flags, config, run)
    packed = pack(settings, folder, make_progress())
    print_result(f"Packed: {packed} ({packed.stat().st_size / 2**20:.1f} MiB)")


@app.command("import", epilog=f.examples("import result.json", "import result.json --run runs/tram"))
@f.with_flags(*(flag for flag in f.DATA if flag.name == "data_root"))
def import_(
    results: Annotated[Path, typer.Argument(metavar="FILE", help="What the device wrote: result.json.")],
    flags: f.Flags,
    run: f.Run = None,
    json: f.Json = False,
) -> None:
    """Take in what a device found that cannot be reached from here: verify, bench and report."""
    from catro_deploy.stages.bundle import take_in

    settings, folder = settings_to_continue("verify", flags, None, run)
    take_in(results, folder)
    work(("build", "verify", "bench", "report"), settings, folder, make_progress(), force=False, as_json=json)


@app.command(epilog=f.examples("ship", "ship --run runs/tram --json"))
@f.with_flags()
def ship(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Copy the network to ship into ship/ of the run folder, with model.json: its input, its classes, its precision.

    run, export and quantize do so at their end.
    """
    continue_run("ship", flags, config, run, force=force, as_json=json)


@app.command(epilog=f.examples("report", "report --run runs/tram --json"))
@f.with_flags()
def report(
    flags: f.Flags, config: f.Config = None, run: f.Run = None, force: f.Force = False, json: f.Json = False
) -> None:
    """Write report.html, report.md and report.json."""
    continue_run("report", flags, config, run, force=force, as_json=json)


@app.command(
    epilog=f.examples(
        "run --target x86-cpu --classes direction_signs --budget 0.5x",
        "run --classes speed_limits --budget 400us --max-drop 0.5",
        "run --classes speed_limits --max-drop 0.5",
    )
)
@f.with_flags(*f.RUN)
def run(
    flags: f.Flags,
    config: f.Config = None,
    run: f.NewRun = None,
    force: f.Force = False,
    json: f.Json = False,
) -> None:
    """Do everything: prune, finetune, export, build, verify, bench, ship, report; and train first, if that must be.

    With --max-drop and no budget, in catro.toml neither, the smallest latency within it is searched first.
    The same command goes on where it was stopped; a changed setting runs again only what depends on it.
    """
    start_run(ALL, flags, config, run, whole=True, force=force, as_json=json)
