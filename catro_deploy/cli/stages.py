"""The commands ``train`` and ``profile``, one command for each stage from pruning on, and ``run`` for all stages."""

from pathlib import Path
from typing import Annotated

import typer

from catro_deploy.cli import flags as f
from catro_deploy.cli import options as o
from catro_deploy.cli.console import make_progress, print_json, print_result
from catro_deploy.cli.settings_flags import Flags, with_flags
from catro_deploy.cli.work import (
    bench_run,
    continue_run,
    export_run,
    own_settings,
    settings_to_continue,
    start_run,
    with_weights,
    work,
)

__all__ = ["app"]

app = typer.Typer()

ALL = (
    "search",
    "variants",
    "prune",
    "finetune",
    "export",
    "quantize",
    "build",
    "verify",
    "bench",
    "runtimes",
    "ship",
    "report",
)

# Flags that --help shows; --help-all shows all.
NETWORK = "model checkpoint data data_root"
CUT = "target classes budget"


@app.command(epilog=o.examples("train", "train --epochs 20 --checkpoint baseline.safetensors"))
@with_flags(*f.MODEL, *f.DATA, *f.TRAIN, first=f"{NETWORK} epochs batch_size learning_rate recipe")
def train(flags: Flags, config: o.Config = None) -> None:
    """Train a baseline from scratch into \\[model] checkpoint, if you have no trained model.

    An existing file is never overwritten. Resumes from the last epoch if it was stopped.
    """
    from catro_deploy.pipeline import train_checkpoint
    from catro_deploy.settings import TrainSettings

    settings = own_settings(config, flags)
    if settings.train is None:
        settings = settings.model_copy(update={"train": TrainSettings()})
    train_checkpoint(settings, make_progress())
    print_result(f"Trained: {settings.model.checkpoint}")


@app.command(epilog=o.examples("profile --target x86-cpu", "profile --profile quick --force"))
@with_flags(
    *f.MODEL, *f.DATA, *f.PRUNE[:3], *f.PRECISION[:1], *f.PROFILE, *f.USE, first=f"{NETWORK} target device profile"
)
def profile(flags: Flags, config: o.Config = None, force: o.Force = False, json: o.Json = False) -> None:
    """Time the network's layers on the target, at the widths that pruning may give them.

    prune does this itself if no profile fits. Measurements are kept for this network on this device; an interrupted
    one continues where it stopped.
    """
    from catro_deploy.cli.profiles import profile_json, show_profile
    from catro_deploy.pipeline import with_target_of_device
    from catro_deploy.stages.profile import profile as measure

    progress = make_progress()
    settings = with_target_of_device(with_weights(own_settings(config, flags), progress))
    found = measure(settings, progress, force=force)
    if json:
        print_json(profile_json(found))
    else:
        print_result(*show_profile(found))


@app.command(
    epilog=o.examples("prune --target x86-cpu --classes speed_limits", "prune --classes 1,2,5 --budget 9.25%flops")
)
@with_flags(*f.MODEL, *f.DATA, *f.PRUNE, *f.PRECISION[:1], *f.PROFILE, *f.USE, first=f"{NETWORK} {CUT} criterion")
def prune(
    flags: Flags,
    config: o.Config = None,
    run: o.NewRun = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Choose the channels that stay, and remove the others."""
    start_run(("prune",), flags, config, run, force=force, keep=keep, as_json=json)


@app.command(epilog=o.examples("finetune", "finetune --epochs 60 --distill 0.5 --run runs/tram"))
@with_flags(*f.DATA_ROOT, *f.FINETUNE, first="data_root epochs learning_rate distill finetune_recipe")
def finetune(
    flags: Flags,
    config: o.Config = None,
    run: o.Run = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Fine-tune the pruned network to recover its accuracy. Resumes from the last epoch if it was stopped."""
    continue_run("finetune", flags, config, run, force=force, keep=keep, as_json=json)


@app.command(epilog=o.examples("export", "export --dynamic-batch --opset 18"))
@with_flags(*f.EXPORT)
def export(
    flags: Flags,
    config: o.Config = None,
    run: o.Run = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Write original.onnx and pruned.onnx; for targets that run in fp16, also both in half precision.

    For a target with TensorRT, engines are then built and checked on your device of that target (device add); if you
    have none, a bundle for one is written.
    """
    export_run(flags, config, run, force=force, keep=keep, as_json=json)


@app.command(epilog=o.examples("quantize", "quantize --precision int8 --max-drop 0.2"))
@with_flags(*f.DATA_ROOT, *f.QUANTIZE)
def quantize(
    flags: Flags,
    config: o.Config = None,
    run: o.Run = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Find the precision that is fastest on the device and keeps the accuracy.

    Exit code 3: it is not the requested one. Without --precision all are tried. The result is served from then on:
    verify, bench and report use it.
    """
    continue_run("quantize", flags, config, run, others=("ship",), force=force, keep=keep, as_json=json)


@app.command(epilog=o.examples("build", "build --level 5 --rebuilds 3"))
@with_flags(*f.BUILD)
def build(
    flags: Flags,
    config: o.Config = None,
    run: o.Run = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Build TensorRT engines of both networks, on the device that will run them."""
    continue_run("build", flags, config, run, force=force, keep=keep, as_json=json)


@app.command(epilog=o.examples("verify", "verify --max-drop 0.5"))
@with_flags(*f.DATA_ROOT, *f.VERIFY)
def verify(
    flags: Flags,
    config: o.Config = None,
    run: o.Run = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Test accuracy of both networks, in PyTorch and in the runtime. Exit code 3: less than requested."""
    continue_run("verify", flags, config, run, force=force, keep=keep, as_json=json)


@app.command(epilog=o.examples("bench", "bench --protocol thorough --threads 4"))
@with_flags(*f.BENCH)
def bench(
    flags: Flags,
    config: o.Config = None,
    run: o.Run = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Measure both networks on the device, interleaved; --runtimes auto also compares all installed runtimes."""
    bench_run(flags, config, run, force=force, keep=keep, as_json=json)


@app.command(epilog=o.examples("bundle", "bundle --run runs/tram"))
@with_flags(*f.DATA_ROOT, *f.CARRIED)
def bundle(flags: Flags, config: o.Config = None, run: o.Run = None) -> None:
    """Pack a bundle for a device that cannot be reached; import reads back its results."""
    from catro_deploy.stages.bundle import bundle as pack

    settings, folder = settings_to_continue("bench", flags, config, run)
    packed = pack(settings, folder, make_progress())
    print_result(f"Packed: {packed} ({packed.stat().st_size / 2**20:.1f} MiB)")


@app.command("import", epilog=o.examples("import result.json", "import result.json --run runs/tram"))
@with_flags(*f.DATA_ROOT)
def import_(
    results: Annotated[Path, typer.Argument(metavar="FILE", help="The file that the device wrote: result.json.")],
    flags: Flags,
    run: o.Run = None,
    json: o.Json = False,
) -> None:
    """Import the results of a bundle: verify, bench and report."""
    from catro_deploy.stages.bundle import take_in

    settings, folder = settings_to_continue("verify", flags, None, run)
    take_in(results, settings, folder)
    work(("build", "verify", "bench", "report"), settings, folder, make_progress(), force=False, as_json=json)


@app.command(epilog=o.examples("ship", "ship --run runs/tram --json"))
@with_flags()
def ship(
    flags: Flags, config: o.Config = None, run: o.Run = None, force: o.Force = False, json: o.Json = False
) -> None:
    """Copy the network to be shipped into ship/ in the run folder. model.json there has input, classes and precision.

    run, export and quantize do this at their end.
    """
    continue_run("ship", flags, config, run, force=force, as_json=json)


@app.command(epilog=o.examples("report", "report --run runs/tram --json"))
@with_flags()
def report(
    flags: Flags,
    config: o.Config = None,
    run: o.Run = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Write report.html, report.md and report.json."""
    continue_run("report", flags, config, run, force=force, keep=keep, as_json=json)


@app.command(
    epilog=o.examples(
        "run --target x86-cpu --classes direction_signs --budget 0.5x",
        "run --classes speed_limits --budget 400us --max-drop 0.5",
        "run --classes speed_limits --budget auto --max-drop 0.5",
        "run --classes speed_limits --budget 0.25x --search",
    )
)
@with_flags(*f.RUN, first=f"{NETWORK} {CUT} epochs precision max_drop search")
def run(
    flags: Flags,
    config: o.Config = None,
    run: o.NewRun = None,
    force: o.Force = False,
    keep: o.Keep = False,
    json: o.Json = False,
) -> None:
    """Do everything: train if there is no checkpoint, prune, finetune, export, build, verify, bench, ship, report.

    --budget auto --max-drop 0.5 searches for the smallest latency that loses at most 0.5 points of accuracy; auto is
    the default if --max-drop is given and no budget is. --search tries several prunings to the same latency, and takes
    the best. An interrupted command continues where it stopped. A changed setting runs only the stages that depend on
    it, and replaces their results.
    """
    start_run(ALL, flags, config, run, force=force, keep=keep, as_json=json)
