"""Energy per inference, from a Jetson's sensors and from nvidia-smi."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from catro_deploy.agent import energy as module
from catro_deploy.agent.energy import energy, open_meter
from tests.transports.sshd import script

NONE = "/no/such/program"
# nvidia-smi of a GPU that draws what the file ``power`` says: as GPUs since Ampere do, it reports the average of the
# last second, and, where the driver has that field, the power of this moment.
STAND_IN = """
import sys, time
from pathlib import Path
power, fields = Path({power!r}), {fields!r}
if "--help-query-gpu" in sys.argv:
    sys.exit(print(*(f'"{{field}}"\\nThe power draw.' for field in fields), sep="\\n"))
asked = next(one for one in sys.argv if one.startswith("--query-gpu=")).partition("=")[2].split(",")
assert set(asked) <= set(fields), "a real one ends with an error"
drawn, next_report = [], time.monotonic()
while True:
    now = time.monotonic()
    drawn = [*[one for one in drawn if one[0] > now - 1], (now, float(power.read_text()))]
    if now >= next_report:
        values = {{"power.draw": sum(watts for _, watts in drawn) / len(drawn), "power.draw.instant": {instant}}}
        print(*(values[field] for field in asked), sep=", ", flush=True)
        next_report += 0.1
    time.sleep(0.01)
"""


def sensors(root: Path, *rails: tuple[str, int, int]) -> None:
    chip = root / "sys/class/hwmon/hwmon1"
    chip.mkdir(parents=True)
    (chip / "name").write_text("ina3221\n")
    for number, (label, millivolts, milliamperes) in enumerate(rails, 1):
        (chip / f"in{number}_label").write_text(f"{label}\n")
        (chip / f"in{number}_input").write_text(f"{millivolts}\n")
        (chip / f"curr{number}_input").write_text(f"{milliamperes}\n")


def told(root: Path, program: str = NONE, **options: bool) -> tuple[str, float | None] | None:
    with open_meter(root, program, **options) as meter:
        if meter is None:
            return None
        time.sleep(0.3)
        return meter.rails, meter.mean_w()


def test_the_rail_of_the_whole_module_counts_if_there_is_one(tmp_path):
    sensors(tmp_path, ("VDD_IN", 5000, 1400), ("VDD_CPU_GPU_CV", 5000, 600))
    assert told(tmp_path) == ("VDD_IN", pytest.approx(7.0))


def test_else_all_rails_together(tmp_path):
    sensors(tmp_path, ("VDD_GPU_SOC", 19000, 300), ("VIN_SYS_5V0", 5000, 800), ("sum of shunt voltages", 1, 1))
    assert told(tmp_path) == ("VDD_GPU_SOC, VIN_SYS_5V0", pytest.approx(9.7))


def test_a_device_that_does_not_tell(tmp_path):
    assert told(tmp_path) is None


class Gpu:
    """Networks on a GPU whose power is known, and the nvidia-smi that reports it."""

    def __init__(self, folder: Path, *fields: str, instant: str = "drawn[-1][1]") -> None:
        self._power, self._drawn = folder / "power", 0.0
        self.lasted: dict[str, list[float]] = {"original": [], "pruned": []}
        self.draw(30)
        folder.joinpath("smi.py").write_text(STAND_IN.format(power=str(self._power), fields=fields, instant=instant))
        self.smi = str(script(folder / "bin" / "nvidia-smi", f'exec {sys.executable} {folder / "smi.py"} "$@"'))

    def draw(self, watts: float) -> None:
        if watts != self._drawn:
            part = self._power.with_suffix(".part")
            part.write_text(str(watts))
            part.rename(self._power)
            self._drawn = watts

    def network(self, name: str, watts: float, seconds: float) -> Callable[[], None]:
        def infer() -> None:
            start = time.perf_counter()
            self.draw(watts)
            time.sleep(seconds)
            self.lasted[name].append(time.perf_counter() - start)

        return infer


def measured(gpu: Gpu, root: Path):
    calls = {"original": gpu.network("original", 200, 0.010), "pruned": gpu.network("pruned", 100, 0.005)}
    with open_meter(root, gpu.smi) as meter:
        found = energy(calls, meter)
    for name, watts in (("original", 200), ("pruned", 100)):  # 2000 and 500 mJ, but a busy machine sleeps for longer
        by_hand = watts * 1000 * sum(gpu.lasted[name]) / len(gpu.lasted[name])
        assert getattr(found, name).watts == pytest.approx(watts, rel=0.02)
        assert getattr(found, name).mj_per_inference == pytest.approx(by_hand, rel=0.1)
    return found


@pytest.mark.slow
def test_averages_over_a_second_do_not_mix_the_networks(tmp_path, monkeypatch):
    """With turns of 2 s that count from their start, the average would be 175 and 125 W."""
    monkeypatch.setattr(module, "TURNS", 2)
    monkeypatch.setattr(module, "TURN_S", 1.0)
    assert measured(Gpu(tmp_path, "power.draw"), tmp_path).idle_w == pytest.approx(30)


def test_the_power_of_this_moment_counts_where_the_driver_has_it(tmp_path, monkeypatch):
    """With turns this short, averages over a second would be of both networks."""
    monkeypatch.setattr(module, "TURNS", 2)
    monkeypatch.setattr(module, "SETTLE_S", 0.25)
    monkeypatch.setattr(module, "TURN_S", 0.5)
    monkeypatch.setattr(module, "IDLE_S", 0.3)
    measured(Gpu(tmp_path, "power.draw", "power.draw.instant"), tmp_path)


def test_a_gpu_without_that_reading_reports_its_average(tmp_path):
    gpu = Gpu(tmp_path, "power.draw", "power.draw.instant", instant="'[N/A]'")
    assert told(tmp_path, gpu.smi) == ("GPU board, by nvidia-smi", 30.0)


def test_nvidia_smi_counts_only_if_networks_run_on_the_gpu(tmp_path):
    assert told(tmp_path, Gpu(tmp_path, "power.draw").smi, gpu=False) is None


def test_an_nvidia_smi_that_ends_gives_no_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SETTLE_S", 0.3)
    monkeypatch.setattr(module, "TURN_S", 0.1)
    script(tmp_path / "nvidia-smi", "case $* in --help*) echo '\"power.draw\"';; *) echo 67.5;; esac")
    with open_meter(tmp_path, str(tmp_path / "nvidia-smi")) as meter:
        assert energy({"original": lambda: time.sleep(0.01)}, meter) is None


def test_energy_is_power_by_time(tmp_path, monkeypatch):
    sensors(tmp_path, ("VDD_IN", 5000, 2000))
    monkeypatch.setattr(module, "SETTLE_S", 0.1)
    monkeypatch.setattr(module, "TURN_S", 0.3)
    monkeypatch.setattr(module, "IDLE_S", 0.1)
    lasted: dict[str, list[float]] = {"original": [], "pruned": []}

    def sleeping(name: str, seconds: float) -> None:
        start = time.perf_counter()
        time.sleep(seconds)
        lasted[name].append(time.perf_counter() - start)

    calls = {"original": lambda: sleeping("original", 0.02), "pruned": lambda: sleeping("pruned", 0.005)}
    with open_meter(tmp_path, NONE) as meter:
        found = energy(calls, meter)
    assert found.idle_w == found.pruned.watts == pytest.approx(10.0)
    for name, seconds in lasted.items():  # a busy machine sleeps for longer
        assert getattr(found, name).mj_per_inference == pytest.approx(10_000 * sum(seconds) / len(seconds), rel=0.1)


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
