import json
import os
import time
from pathlib import Path

import pytest

from catro_deploy.agent.device import DeviceFacts, DeviceState, flat
from catro_deploy.agent.facts import LoadMeter, device_facts, state
from catro_deploy.agent.wire import read, to_json

JETSON = {
    "proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 62.50\nFeatures\t: fp asimd asimdhp asimddp crc32\n\nprocessor\t: 1\n",
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
    "proc/meminfo": "MemTotal:        7802112 kB\nMemFree:          123 kB\n",
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n',
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1510400\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "1984000\n",
    "sys/class/thermal/thermal_zone0/temp": "47250\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone1/temp": "garbage\n",
}
DESKTOP = {
    "proc/cpuinfo": "processor : 0\nmodel name : Acme 9000\ncpu MHz : 3600.125\nflags : fpu sse4_2 avx2 ht avx512f\n",
    "sys/class/dmi/id/product_name": "Acme Tower\n",
}


def planted(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_an_arm_board(tmp_path):
    root = planted(tmp_path, JETSON)
    facts = device_facts(root)
    assert facts.device == "NVIDIA Jetson Orin Nano Developer Kit"
    assert facts.cpu_model is None
    assert facts.instruction_sets == ("asimd", "asimdhp", "asimddp")
    assert (facts.governor, facts.memory_bytes) == ("schedutil", 7802112 * 1024)
    assert facts.highest_clock_mhz == 1984
    assert facts.os == "Ubuntu 22.04.4 LTS"
    assert state(root).clock_mhz == 1510.4
    assert state(root).temperatures_c == {"thermal_zone0 cpu-thermal": 47.25}


def test_a_desktop(tmp_path):
    root = planted(tmp_path, DESKTOP)
    facts = device_facts(root)
    assert (facts.device, facts.cpu_model) == ("Acme Tower", "Acme 9000")
    assert facts.instruction_sets == ("sse4_2", "avx2", "avx512f")
    assert state(root).clock_mhz == 3600.125


def test_where_nothing_can_be_read_facts_are_null(tmp_path):
    facts = flat(device_facts(tmp_path)) | flat(state(tmp_path))
    unknown = {"device", "cpu_model", "instruction_sets", "governor", "highest_clock_mhz", "memory_bytes"}
    unknown |= {"clock_mhz", "temperatures_c"}
    assert {name for name, value in facts.items() if value is None} == unknown
    assert LoadMeter(tmp_path).other_load_cores() is None


def test_elsewhere_than_on_linux_it_does_not_fail(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "getloadavg")
    assert device_facts(tmp_path).cores == os.cpu_count()
    assert state(tmp_path).load_average is None


def test_this_machine_gives_facts_that_json_takes():
    facts, now = device_facts(), state()
    assert read(DeviceFacts, json.loads(json.dumps(to_json(facts)))) == facts
    assert read(DeviceState, json.loads(json.dumps(to_json(now)))) == now
    assert facts.cores >= 1
    assert facts.python.startswith("3.")


def test_cores_are_all_that_the_load_is_of():
    """Pinned to one core, as benchmarks often are, a process still sees the load of the whole machine."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert device_facts().cores == os.cpu_count()
    finally:
        os.sched_setaffinity(0, allowed)


def proc_stat(*jiffies: int) -> dict[str, str]:
    return {"proc/stat": f"cpu  {' '.join(map(str, jiffies))} 0 0\ncpu0 1 2 3\n"}


def test_load_of_others_is_what_the_kernel_counted_less_our_own(tmp_path, monkeypatch):
    """In 10 s the machine was busy for 25 s of CPU time (without idle and waiting); 5 s of them were ours."""
    ticks = os.sysconf("SC_CLK_TCK")
    clocks = {"wall": 100.0, "own": 1.0}
    monkeypatch.setattr(time, "monotonic", lambda: clocks["wall"])
    monkeypatch.setattr(time, "process_time", lambda: clocks["own"])
    meter = LoadMeter(planted(tmp_path, proc_stat(10, 0, 0, 1000, 10, 0, 0, 0)))
    clocks.update(wall=110.0, own=6.0)
    user, system, steal = 10 + 20 * ticks, 3 * ticks, 2 * ticks
    planted(tmp_path, proc_stat(user, 0, system, 9000, 500, 0, 0, steal))
    assert meter.other_load_cores() == pytest.approx((25 - 5) / 10)
