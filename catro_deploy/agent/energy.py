"""Energy of an inference, where the device tells what power it draws: a Jetson's sensors, or nvidia-smi.

Power is sampled some ten times a second, for which single inferences are far too short: each model runs back to back
for a while, alternately, and the energy of a turn is divided by its inferences. What else the device does is included;
what it draws when it idles is reported beside it.
"""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from catro_deploy.agent.results import Energy, ModelEnergy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["energy", "open_meter"]

TURNS, TURN_S, IDLE_S = 3, 2.0, 1.0
EVERY_S = 0.05
SENSOR = "ina3221"
# The rail of the whole module, on boards that have one; on the others all rails together are that.
WHOLE = ("VDD_IN", "POM_5V_IN", "VIN")
NVIDIA_SMI = (
    "nvidia-smi", "--id=0", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "--loop-ms=100",
)  # fmt: skip


class Meter:
    """Watts as ``read`` tells them; ``rails`` says of what."""

    def __init__(self, rails: str, read: Callable[[], float | None]) -> None:
        self.rails = rails
        self._read = read
        self._samples: list[float] = []
        self._lock = threading.Lock()

    def sample(self) -> None:
        """Note what is drawn now, if that is known."""
        watts = self._read()
        if watts is not None:
            with self._lock:
                self._samples.append(watts)

    def mean_w(self) -> float | None:
        """The mean since the last time this was asked; None if nothing was noted."""
        with self._lock:
            samples, self._samples = self._samples, []
        return sum(samples) / len(samples) if samples else None


@contextmanager
def open_meter(
    root: Path = Path("/"), command: Sequence[str] = NVIDIA_SMI, *, gpu: bool = True
) -> Iterator[Meter | None]:
    """A meter that samples as long as the block lasts; None on a device that does not tell its power.

    A Jetson tells that of all; nvidia-smi that of the GPU, which means something only if networks run on the ``gpu``.
    """
    rails = _rails(root)
    if rails:
        with _sampled(Meter(", ".join(rails), lambda: _watts(rails))) as meter:
            yield meter
        return
    if not gpu:
        yield None
        return
    try:
        process = subprocess.Popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield None
        return
    said: list[float | None] = [None]

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                said[0] = float(line)
            except ValueError:  # [N/A]
                said[0] = None

    with process:
        threading.Thread(target=listen, daemon=True).start()
        try:
            with _sampled(Meter("GPU board, by nvidia-smi", lambda: said[0])) as meter:
                yield meter
        finally:
            process.kill()


def energy(calls: Mapping[str, Callable[[], object]], meter: Meter) -> Energy | None:
    """Energy of an inference of ``original`` and ``pruned``, which ``calls`` run; None if the meter has no reading."""
    meter.mean_w()
    time.sleep(IDLE_S)
    idle_w = meter.mean_w()
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, infer in calls.items():
            meter.mean_w()
            began, count = time.monotonic(), 0
            while time.monotonic() - began < TURN_S:
                infer()
                count += 1
            elapsed_s, watts = time.monotonic() - began, meter.mean_w()
            if watts is None:
                return None
            turns[name].append((watts, watts * elapsed_s / count * 1e3))
    return Energy(meter.rails, idle_w, _model_energy(turns["original"]), _model_energy(turns["pruned"]))


def _model_energy(turns: Sequence[tuple[float, float]]) -> ModelEnergy:
    """The mean of watts and of millijoules per inference over all turns."""
    millijoules = [mj for _, mj in turns]
    return ModelEnergy(
        watts=sum([watts for watts, _ in turns]) / TURNS,
        mj_per_inference=sum(millijoules) / TURNS,
        spread=max(millijoules) / min(millijoules) - 1 if min(millijoules) else None,
    )


@contextmanager
def _sampled(meter: Meter) -> Iterator[Meter]:
    over = threading.Event()

    def sample() -> None:
        while not over.wait(EVERY_S):
            meter.sample()

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        over.set()
        thread.join()


def _rails(root: Path) -> dict[str, tuple[Path, Path]]:
    """Files of millivolts and milliamperes by rail: the module's, or all if there is none for that."""
    found = {}
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        if _text(chip / "name") != SENSOR:
            continue
        for label in sorted(chip.glob("in*_label")):
            number = label.name[2 : -len("_label")]
            volts, amperes = chip / f"in{number}_input", chip / f"curr{number}_input"
            name = _text(label)
            if name and "sum" not in name.lower() and volts.is_file() and amperes.is_file():
                found[name] = (volts, amperes)
    whole = {name: files for name, files in found.items() if name in WHOLE}
    return whole or found


def _watts(rails: Mapping[str, tuple[Path, Path]]) -> float | None:
    total_w = 0.0
    for volts, amperes in rails.values():
        millivolts, milliamperes = _text(volts), _text(amperes)
        if not (millivolts.isdigit() and milliamperes.lstrip("-").isdigit()):
            return None
        total_w += int(millivolts) * int(milliamperes) / 1e6
    return total_w


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
