"""Energy of an inference, where the device reports its power: from a Jetson's sensors, or from nvidia-smi.

Power is sampled about ten times a second, for which single inferences are far too short: the models run alternately,
each back to back for some seconds, and the energy of a turn is divided by its number of inferences. On most GPUs the
driver reports power as an average over one second (Ampere and later, except GA100: nvidia-smi --help-query-gpu). So the
instantaneous power is requested where the driver has it, and the first second of a turn, in which the average still
includes the previous turn, does not count. Whatever else the device does is included; its idle power is reported as
well.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from catro_deploy.agent.nvidia import number
from catro_deploy.agent.nvidia_query import NVIDIA_SMI, nvidia_query
from catro_deploy.agent.results import Energy, ModelEnergy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from catro_deploy.agent.nvidia_query import NvidiaQuery

__all__ = ["energy", "open_meter"]

TURNS, TURN_S, IDLE_S = 3, 4.0, 1.0
# Time before a turn counts: an average over a second, and the age of the newest reading.
SETTLE_S = 1.25
EVERY_S, EVERY_MS = 0.05, 100
SENSOR = "ina3221"
# The rail of the whole module, on boards that have one; on the others it is the sum of all rails.
WHOLE = ("VDD_IN", "POM_5V_IN", "VIN")
# The first that has a value is used.
POWER_FIELDS = ("power.draw.instant", "power.draw")


class Meter:
    """Watts from ``read``; ``rails`` names what draws them."""

    def __init__(self, rails: str, read: Callable[[], float | None]) -> None:
        self.rails = rails
        self._read = read
        self._samples: list[float] = []
        self._lock = threading.Lock()

    def sample(self) -> None:
        """Record the present power, if it is known."""
        watts = self._read()
        if watts is not None:
            with self._lock:
                self._samples.append(watts)

    def mean_w(self) -> float | None:
        """The mean since the last call; None without readings."""
        with self._lock:
            samples, self._samples = self._samples, []
        return sum(samples) / len(samples) if samples else None


@contextmanager
def open_meter(root: Path = Path("/"), program: str = NVIDIA_SMI, *, gpu: bool = True) -> Iterator[Meter | None]:
    """A meter that samples during the block; None on a device that does not report its power.

    A Jetson reports that of the board; nvidia-smi that of the GPU, which is used only if networks run on the ``gpu``.
    """
    rails = _rails(root)
    if rails:
        with _sampled(Meter(", ".join(rails), lambda: _watts(rails))) as meter:
            yield meter
        return
    if not gpu:
        yield None
        return
    with nvidia_query(POWER_FIELDS, EVERY_MS, program) as query:
        if query is None:
            yield None
            return
        with _sampled(Meter("GPU board, by nvidia-smi", _newest(query))) as meter:
            yield meter


def _newest(query: NvidiaQuery) -> Callable[[], float | None]:
    """A function that returns the newest power in watts, if there is a new reading."""

    def read() -> float | None:
        readings = query.readings()
        values = [number(readings[-1].get(field)) for field in POWER_FIELDS] if readings else []
        return next((watts for watts in values if watts is not None), None)

    return read


def energy(calls: Mapping[str, Callable[[], object]], meter: Meter) -> Energy | None:
    """Energy per inference of ``original`` and ``pruned``, which ``calls`` run; None if the meter has no reading."""
    time.sleep(SETTLE_S)
    meter.mean_w()
    time.sleep(IDLE_S)
    idle_w = meter.mean_w()
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, infer in calls.items():
            _repeated(infer, SETTLE_S)
            meter.mean_w()
            elapsed_s, count = _repeated(infer, TURN_S)
            watts = meter.mean_w()
            if watts is None:
                return None
            turns[name].append((watts, watts * elapsed_s / count * 1e3))
    return Energy(meter.rails, idle_w, _model_energy(turns["original"]), _model_energy(turns["pruned"]))


def _repeated(infer: Callable[[], object], seconds: float) -> tuple[float, int]:
    """Infer for ``seconds``, at least once; return the elapsed seconds and the number of inferences."""
    began, count = time.monotonic(), 0
    while count == 0 or time.monotonic() - began < seconds:
        infer()
        count += 1
    return time.monotonic() - began, count


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
    """Files of millivolts and milliamperes by rail: that of the whole module, or all rails if it has none."""
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
