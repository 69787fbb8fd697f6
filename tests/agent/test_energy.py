"""Energy per inference, from a Jetson's sensors and from nvidia-smi."""

import sys
import time
from pathlib import Path

import pytest

from catro_deploy.agent import energy as module
from catro_deploy.agent.energy import energy, open_meter

NONE = ("/no/such/program",)


def sensors(root: Path, *rails: tuple[str, int, int]) -> None:
    chip = root / "sys/class/hwmon/hwmon1"
    chip.mkdir(parents=True)
    (chip / "name").write_text("ina3221\n")
    for number, (label, millivolts, milliamperes) in enumerate(rails, 1):
        (chip / f"in{number}_label").write_text(f"{label}\n")
        (chip / f"in{number}_input").write_text(f"{millivolts}\n")
        (chip / f"curr{number}_input").write_text(f"{milliamperes}\n")


def told(root: Path, command: tuple[str, ...] = NONE, **options: bool) -> tuple[str, float | None] | None:
    with open_meter(root, command, **options) as meter:
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


def test_a_gpu_by_nvidia_smi_if_networks_run_there(tmp_path):
    says = "import time\nfor w in ('[N/A]', '67.50', '68.50') * 99: print(w, flush=True); time.sleep(0.02)"
    command = (sys.executable, "-c", says)
    assert told(tmp_path, command, gpu=False) is None
    rails, watts = told(tmp_path, command)
    assert "nvidia-smi" in rails
    assert 67.5 <= watts <= 68.5


def test_energy_is_power_by_time(tmp_path, monkeypatch):
    sensors(tmp_path, ("VDD_IN", 5000, 2000))
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
    monkeypatch.setattr(module, "TURN_S", 0.1)
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    with open_meter(tmp_path, NONE) as meter:
        (tmp_path / "sys/class/hwmon/hwmon1/curr1_input").write_text("")
        time.sleep(0.2)
        meter.mean_w()
        assert energy({"original": lambda: time.sleep(0.01)}, meter) is None
