"""Clocks during measurements: fake files of Jetsons and PCs, and an nvidia-smi stand-in with a series of readings."""

import sys
import time
from functools import partial
from pathlib import Path

import pytest

from catro_deploy.agent import bench as bench_module
from catro_deploy.agent import clocks as module
from catro_deploy.agent.agent import run
from catro_deploy.agent.clocks import clock_remarks, watched_clocks
from catro_deploy.agent.device import ClockRange, JetsonFacts, MeasuredClocks
from catro_deploy.agent.jobs import BenchJob, BenchProtocol, ModelFile, Workspace
from catro_deploy.agent.results import Mode
from tests.agent.measured import facts_of
from tests.agent.test_facts import planted
from tests.onnx_files import write_conv_chain
from tests.transports.sshd import script

NONE = "/no/such/program"
DEVFREQ = "sys/class/devfreq/17000000.gpu"
ORIN = {f"{DEVFREQ}/cur_freq": "1020000000\n", f"{DEVFREQ}/max_freq": "1020000000\n"}
# Fields of a driver with the newer name of the reasons, of one with the older name, and of one with neither.
EVENTS, THROTTLING, NEITHER = ("clocks_event_reasons.active",), ("clocks_throttle_reasons.active",), ()


@pytest.fixture(autouse=True)
def _read_each_time(monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 0.0)


def test_the_gpu_of_a_jetson_is_read_between_turns(tmp_path):
    """By hand: 306 was warm-up; of 612, 1020, 1020 and 918 the lower median is 918."""
    root = planted(tmp_path, ORIN)

    def now(mhz: int, allowed: int = 1020) -> None:
        planted(root, {f"{DEVFREQ}/cur_freq": f"{mhz}000000\n", f"{DEVFREQ}/max_freq": f"{allowed}000000\n"})

    with watched_clocks(gpu=True, root=root, program=NONE) as watch:
        now(306)
        watch.sample(counts=False)
        for mhz, allowed in ((612, 1020), (1020, 1020), (1020, 1020)):
            now(mhz, allowed)
            watch.sample(counts=True)
        now(918, allowed=918)  # too hot
        found = watch.found()
    assert found == MeasuredClocks({"GPU": ClockRange(612, 918, 1020, 1020, 4)}, ())


def test_the_cpu_is_read_if_networks_run_there(tmp_path):
    root = planted(tmp_path, ORIN | {"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "7\n"})
    for core in range(64):
        folder = f"sys/devices/system/cpu/cpu{core}/cpufreq"
        planted(root, {f"{folder}/scaling_cur_freq": "1510400\n", f"{folder}/scaling_max_freq": "1984000\n"})
    with watched_clocks(gpu=False, root=root) as watch:
        planted(root, {"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "9\n"})
        found = watch.found()
    assert found == MeasuredClocks({"CPU": ClockRange(1510.4, 1510.4, 1510.4, 1984, 1)}, ("cpu_thermal",))


def test_where_nothing_can_be_read_there_is_nothing(tmp_path):
    for gpu in (True, False):
        with watched_clocks(gpu=gpu, root=tmp_path, program=NONE) as watch:
            watch.sample(counts=True)
            assert watch.found() == MeasuredClocks({}, ())


def smi(folder: Path, reasons: tuple[str, ...]) -> str:
    """An nvidia-smi stand-in for a GPU under load: it goes from 210 MHz to 1980 MHz, and is then throttled."""
    fields = ("clocks.sm", "clocks.max.sm", *reasons)
    series = [(210, "0x0000000000000001"), (1980, "0x0000000000000000"), (1410, "0x0000000000000064")]
    folder.joinpath("smi.py").write_text(f"""
import sys, time
if "--help-query-gpu" in sys.argv:
    sys.exit(print(*('"%s" or something' % field for field in {fields!r}), sep="\\n"))
assert "--query-gpu={",".join(fields)}" in sys.argv, sys.argv
for clock, reasons in {series!r}:
    print(clock, 1980, *[reasons] * {len(reasons)}, sep=", ", flush=True)
time.sleep(60)
""")
    return str(script(folder / "bin" / "nvidia-smi", f'exec {sys.executable} {folder / "smi.py"} "$@"'))


@pytest.mark.parametrize("reasons", [EVENTS, THROTTLING, NEITHER])
def test_a_gpu_by_nvidia_smi(tmp_path, reasons):
    with watched_clocks(gpu=True, root=tmp_path, program=smi(tmp_path, reasons)) as watch:
        deadline = time.monotonic() + 60
        while (found := watch.found()).clocks_mhz.get("GPU", ClockRange(0, 0, 0, 0, 0)).samples < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert found.clocks_mhz == {"GPU": ClockRange(210, 1410, 1980, 1980, 3)}
    assert found.throttled == (("hw_thermal_slowdown", "sw_power_cap", "sw_thermal_slowdown") if reasons else ())


def during(throttled: tuple[str, ...] = (), **clocks: ClockRange) -> MeasuredClocks:
    return MeasuredClocks(clocks, throttled)


def test_a_clock_below_its_maximum_is_reported_with_what_helps():
    below = during(GPU=ClockRange(306, 918, 1020, 1020, 40))
    (said,) = clock_remarks(facts_of(during=below, jetson_facts=JetsonFacts("36.4.7", "25W", None, None)), gpu=True)
    assert "below its maximum of 1020 MHz during the measurement: 306 to 1020 MHz, median 918 MHz" in said
    assert said.endswith("sudo jetson_clocks")
    (said,) = clock_remarks(facts_of(during=during(GPU=ClockRange(1410, 1410, 1410, 1980, 4))), gpu=True)
    assert "1410 MHz, median 1410 MHz" in said
    assert said.endswith("sudo nvidia-smi --lock-gpu-clocks")


def test_a_clock_that_stayed_at_its_maximum_is_not_reported():
    for steady in (ClockRange(1019, 1020, 1020, 1020, 40), ClockRange(500, 700, 900, None, 3)):
        assert clock_remarks(facts_of(during=during(GPU=steady)), gpu=True) == []


def test_a_cpus_clock_is_reported_if_it_changed():
    """A CPU's maximum is that of a single core: under load, the CPU does not reach it."""
    assert clock_remarks(facts_of(during=during(CPU=ClockRange(3600, 3700, 3900, 5200, 9))), gpu=False) == []
    (said,) = clock_remarks(facts_of(during=during(CPU=ClockRange(1800, 3700, 3900, 5200, 9))), gpu=False)
    assert "1800 to 3900 MHz, median 3700 MHz" in said


def test_throttling_is_reported():
    (said,) = clock_remarks(facts_of(during=during(("sw_power_cap",))), gpu=True)
    assert said == "The clock was throttled during the measurement: sw_power_cap."


def test_a_benchmark_has_the_clocks_of_its_own_time(tmp_path, monkeypatch):
    root = planted(tmp_path / "root", {})
    for core in range(64):
        folder = f"sys/devices/system/cpu/cpu{core}/cpufreq"
        planted(root, {f"{folder}/scaling_cur_freq": "1500000\n", f"{folder}/scaling_max_freq": "3000000\n"})
    monkeypatch.setattr(bench_module, "watched_clocks", partial(watched_clocks, root=root))
    write_conv_chain(tmp_path / "model.onnx")
    models = {name: ModelFile("model.onnx", {}) for name in ("original", "pruned")}
    protocol = BenchProtocol(0.05, 0.1, 20, 5.0, 5, 10, 0)
    job = BenchJob("onnxruntime", 1, None, models, (Mode(1),), protocol)
    found = run(job, Workspace(str(tmp_path), str(tmp_path)), lambda _: None).facts.during
    assert found.throttled == ()
    clock = found.clocks_mhz["CPU"]
    assert (clock.lowest, clock.median, clock.highest, clock.allowed) == (1500, 1500, 1500, 3000)
    assert clock.samples >= 2
