"""Transfer of run folders to machines that do not share them, and back: tar archives in memory."""

import io
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from catro_deploy.files import write_bytes
from catro_deploy.resources import config_folder
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings, settings_from_text, settings_text
from catro_deploy.sweep.orders import Event, Order, running

__all__ = ["FOLDER", "STATE", "Luggage", "follow_carried", "packed_config", "packed_named", "packed_run", "take_back"]

FOLDER, STATE = "folder", "state"
"""Events that carry a run folder, or the state of an unfinished training."""
OWN = ("devices.toml", "targets/*.toml")
"""Files in the user's configuration folder that a step may need."""


@dataclass(frozen=True)
class Luggage:
    """What is sent with a step: its run folder, the user's devices and targets, named files, and the checkpoint's name.

    Named files are the targets, protocols and recipes that settings name by a path below the working folder.
    """

    run: bytes
    config: bytes
    named: bytes
    checkpoint: str


def packed_run(run: RunFolder) -> bytes:
    """Pack ``run`` except its settings, which come with the order, and hidden files: locks and unfinished files."""
    files = [path for path in sorted(run.path.rglob("*")) if path.is_file() and path != run.settings]
    return _packed(run.path, [path for path in files if not path.name.startswith(".")])


def packed_config() -> bytes:
    """Pack the user's devices and targets."""
    folder = config_folder()
    return (
        _packed(folder, [path for end in OWN for path in sorted(folder.glob(end))]) if folder else _packed(Path(), [])
    )


def packed_named(settings: Settings) -> bytes:
    """Pack the files below the working folder that ``settings`` name."""
    names = (settings.prune.target, settings.bench.protocol, settings.profile.protocol, settings.quantize.recipe)
    here = Path.cwd()
    files = {(here / name).resolve() for name in names if name.endswith(".toml")}
    return _packed(
        here.resolve(), sorted(file for file in files if file.is_relative_to(here.resolve()) and file.is_file())
    )


def _packed(folder: Path, files: list[Path]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for file in files:
            archive.add(file, file.relative_to(folder).as_posix(), recursive=False)
    return content.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    """Unpack ``content`` into ``folder``, writing each file atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            goal = (folder / member.name).resolve()
            if file is not None and goal.is_relative_to(folder.resolve()):
                write_bytes(goal, file.read())


def take_back(event: Event, run: RunFolder, text: str) -> None:
    """Write the content of a FOLDER or STATE event into ``run``, whose settings are ``text``."""
    run.path.mkdir(parents=True, exist_ok=True)
    if event["event"] == STATE:
        write_bytes(run.finetune_state, event["content"])
        return
    _unpack(event["content"], run.path)
    if not event["training"]:
        run.finetune_state.unlink(missing_ok=True)
    write_bytes(run.settings, text.encode())


def follow_carried(order: Order, environment: dict[str, str], luggage: Luggage, checkpoint: bytes) -> Iterator[Event]:
    """Run a step in a temporary folder with a copy of its run folder, and yield its events.

    A STATE event is added whenever a training has saved its state, a FOLDER event whenever a step begins or ends.
    """
    with tempfile.TemporaryDirectory(prefix="catro-deploy-") as temporary:
        place = Path(temporary)
        run = RunFolder(place / Path(order.run).name)
        _unpack(luggage.run, run.path)
        _unpack(luggage.config, place / "config")
        _unpack(luggage.named, place)
        weights = place / "checkpoint" / luggage.checkpoint
        write_bytes(weights, checkpoint)
        settings = settings_from_text(order.text)
        model = settings.model.model_copy(update={"checkpoint": weights})
        text = settings_text(settings.model_copy(update={"model": model}))
        here = replace(order, run=str(run.path), text=text, place=temporary)
        own = {"CATRO_CONFIG": str(place / "config")}
        with running(here, environment | own, threading.Event()) as events:
            yield from _with_results(events, run)


def _with_results(events: Iterator[Event], run: RunFolder) -> Iterator[Event]:
    saved_ns = _saved_ns(run)
    for event in events:
        if (now_ns := _saved_ns(run)) not in (0, saved_ns):
            saved_ns = now_ns
            yield {"event": STATE, "content": run.finetune_state.read_bytes()}
        if event["event"] in ("step", "end", "error", "killed"):
            yield {"event": FOLDER, "content": packed_run(run), "training": run.finetune_state.is_file()}
        yield event


def _saved_ns(run: RunFolder) -> int:
    """Time at which the state of the training was last saved; 0 if there is none."""
    try:
        return run.finetune_state.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
