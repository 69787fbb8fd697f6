"""Energy per inference, from a Jetson's sensors and from nvidia-smi."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from catro_deploy.agent import energy as module
from catro_deploy.agent.energy import Meter, energy, open_meter
from tests.transports.sshd import script

NONE = "/no/such/program"
# An nvidia-smi stand-in for a driver with these fields, whose readings stay the same.
STAND_IN = """
import sys, time
fields = {fields!r}
if "--help-query-gpu" in sys.argv:
    sys.exit(print(*(f'"{{field}}"\\nThe power draw.' for field in fields), sep="\\n"))
asked = next(one for one in sys.argv if one.startswith("--query-gpu=")).partition("=")[2].split(",")
assert set(asked) <= set(fields), "a real one ends with an error"
print(*(fields[field] for field in asked), sep=", ", flush=True)
time.sleep(60)
"""


def sensors(root: Path, *rails: tuple[str, int, int]) -> None:
    chip = root / "sys/class/hwmon/hwmon1"
    chip.mkdir(parents=True)
    (chip / "name").write_text("ina3221\n")
    for number, (label, millivolts, milliamperes) in enumerate(rails, 1):
        (chip / f"in{number}_label").write_text(f"{label}\n")
        (chip / f"in{number}_input").write_text(f"{millivolts}\n")
        (chip / f"curr{number}_input").write_text(f"{milliamperes}\n")


def smi(folder: Path, **fields: str) -> str:
    (folder / "smi.py").write_text(STAND_IN.format(fields={name.replace("_", "."): of for name, of in fields.items()}))
    return str(script(folder / "bin" / "nvidia-smi", f'exec {sys.executable} {folder / "smi.py"} "$@"'))


def metered(root: Path, program: str = NONE, **options: bool) -> tuple[str, float] | None:
    """The rails that are metered, and their first reading in watts; None without a meter."""
    with open_meter(root, program, **options) as meter:
        if meter is None:
            return None
        deadline = time.monotonic() + 60
        while (watts := meter.mean_w()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return meter.rails, watts


def test_the_rail_of_the_whole_module_counts_if_there_is_one(tmp_path):
    sensors(tmp_path, ("VDD_IN", 5000, 1400), ("VDD_CPU_GPU_CV", 5000, 600))
    assert metered(tmp_path) == ("VDD_IN", pytest.approx(7.0))


def test_else_all_rails_together(tmp_path):
    sensors(tmp_path, ("VDD_GPU_SOC", 19000, 300), ("VIN_SYS_5V0", 5000, 800), ("sum of shunt voltages", 1, 1))
    assert metered(tmp_path) == ("VDD_GPU_SOC, VIN_SYS_5V0", pytest.approx(9.7))


def test_a_device_without_energy_readings(tmp_path):
    assert metered(tmp_path) is None


class Gpu:
    """A GPU of known power, with a clock that advances only while something sleeps; readings are like the driver's.

    Every 100 ms there is a reading, the average of the last ``average_s`` seconds; the meter polls every 50 ms.
    """

    STEP_S = 0.01

    def __init__(self, monkeypatch: pytest.MonkeyPatch, average_s: float) -> None:
        self.meter = Meter("GPU", self._read)
        self.watts = 30.0
        self._drawn: list[float] = []
        self._reading: float | None = None
        self._averaged = round(average_s / self.STEP_S)
        monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return len(self._drawn) * self.STEP_S

    def sleep(self, seconds: float) -> None:
        for _ in range(round(seconds / self.STEP_S)):
            self._drawn.append(self.watts)
            if len(self._drawn) % 10 == 0:
                self._reading = float(np.mean(self._drawn[-self._averaged :]))
            if len(self._drawn) % 5 == 0:
                self.meter.sample()

    def network(self, watts: float, seconds: float) -> Callable[[], None]:
        def infer() -> None:
            self.watts = watts
            self.sleep(seconds)

        return infer

    def _read(self) -> float | None:
        reading, self._reading = self._reading, None
        return reading


@pytest.mark.parametrize("average_s", [1.0, 0.01])
def test_averages_over_a_second_do_not_mix_the_networks(monkeypatch, average_s):
    gpu = Gpu(monkeypatch, average_s)
    found = energy({"original": gpu.network(200, 0.02), "pruned": gpu.network(100, 0.01)}, gpu.meter)
    assert (found.rails, found.idle_w) == ("GPU", pytest.approx(30))
    assert (found.original.watts, found.pruned.watts) == (pytest.approx(200), pytest.approx(100))
    assert found.original.mj_per_inference == pytest.approx(200 * 20)
    assert found.pruned.mj_per_inference == pytest.approx(100 * 10)
    assert found.original.spread == pytest.approx(0)


def test_the_power_of_this_moment_counts_where_the_driver_has_it(tmp_path):
    asked = smi(tmp_path, power_draw="80.25", power_draw_instant="120.5")
    assert metered(tmp_path, asked) == ("GPU board, by nvidia-smi", 120.5)


def test_a_gpu_without_that_reading_reports_its_average(tmp_path):
    asked = smi(tmp_path, power_draw="80.25", power_draw_instant="[N/A]")
    assert metered(tmp_path, asked) == ("GPU board, by nvidia-smi", 80.25)


def test_a_driver_without_that_field_reports_its_average(tmp_path):
    assert metered(tmp_path, smi(tmp_path, power_draw="80.25")) == ("GPU board, by nvidia-smi", 80.25)


def test_nvidia_smi_counts_only_if_networks_run_on_the_gpu(tmp_path):
    assert metered(tmp_path, smi(tmp_path, power_draw="80.25"), gpu=False) is None


def test_an_nvidia_smi_that_ends_gives_no_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SETTLE_S", 0.3)
    monkeypatch.setattr(module, "TURN_S", 0.1)
    script(tmp_path / "nvidia-smi", "case $* in --help*) echo '\"power.draw\"';; *) echo 67.5;; esac")
    with open_meter(tmp_path, str(tmp_path / "nvidia-smi")) as meter:
        assert energy({"original": lambda: time.sleep(0.01)}, meter) is None


def test_a_sensor_that_falls_silent_gives_no_figure(tmp_path, monkeypatch):
    sensors(tmp_path, ("VDD_IN", 5000, 2000))
    monkeypatch.setattr(module, "SETTLE_S", 0.1)
    monkeypatch.setattr(module, "TURN_S", 0.1)
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    with open_meter(tmp_path, NONE) as meter:
        (tmp_path / "sys/class/hwmon/hwmon1/curr1_input").write_text("")
        time.sleep(0.2)
        meter.mean_w()
        assert energy({"original": lambda: time.sleep(0.01)}, meter) is None
