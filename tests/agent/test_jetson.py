"""What Jetsons report: recorded output of many boards and releases, and short lines in the same formats."""

from pathlib import Path

import pytest

from catro_deploy.agent.device import JetsonFacts, flat
from catro_deploy.agent.facts import device_facts, state
from catro_deploy.agent.jetson import jetson_clocks, l4t_release, power_mode, tegrastats
from tests.agent.test_facts import JETSON, planted
from tests.transports.sshd import script

RELEASE = "# R36 (release), REVISION: 4.7, GCID: 1, BOARD: generic, EABI: aarch64, DATE: Thu Sep 18 22:54:44 UTC 2025\n"
CLOCKS = """\
SOC family:tegra234  Machine:NVIDIA Jetson AGX Orin Developer Kit
cpu0:  Online=1 Governor=schedutil MinFreq=729600 MaxFreq=1728000 CurrentFreq=729600 IdleStates: WFI=1 c7=1
GPU MinFreq=306000000 MaxFreq=612000000 CurrentFreq=306000000
Active GPU TPCs: 4
EMC MinFreq=204000000 MaxFreq=3199000000 CurrentFreq=2133000000 FreqOverride=0
NV Power Mode: MODE_30W
"""
ORIN = (
    "11-21-2025 08:49:48 RAM 13983/62780MB (lfb 424x4MB) SWAP 126/31390MB (cached 0MB) CPU [90%@2201,off] "
    "EMC_FREQ 1%@2133 GR3D_FREQ 14%@[407,408] APE 174 CPU@77.281C Tboard@62C tj@-7.5C "
    "VDD_GPU_SOC 3150mW/2971mW VDD_CPU_CV 14312mW/12415mW\n"
)


def test_power_modes():
    assert power_mode("NV Power Mode: MODE_30W\n2\n") == "MODE_30W"
    assert power_mode("NVPM VERB: Config file: x\nNVPM VERB: Current mode: NV Power Mode: 40W\n4\n") == "40W"
    assert power_mode("nvpmodel: command not found") is None


def test_releases():
    assert l4t_release(RELEASE) == "36.4.7"
    assert l4t_release("something else") is None


def test_clocks():
    found = jetson_clocks(CLOCKS)
    assert found == {"gpu": (306, 612, 306), "emc": (204, 3199, 2133), "gpu_tpcs": 4}
    assert jetson_clocks("Error: Run this script(/usr/bin/jetson_clocks) as a root user\n") == {}


def test_a_line_of_tegrastats():
    found = tegrastats(ORIN)
    assert found["temperatures_c"] == {"CPU": 77.281, "Tboard": 62, "tj": -7.5}
    assert found["power_w"] == {"VDD_GPU_SOC": 3.15, "VDD_CPU_CV": 14.312}
    assert (found["gpu_load"], found["gpu_clock_mhz"]) == (0.14, 407)
    assert tegrastats("") == {"temperatures_c": {}, "power_w": {}}


def test_units_that_older_releases_leave_out_and_peaks_that_newer_ones_add():
    old = tegrastats("RAM 1/2MB CPU [0%@345] GR3D_FREQ 0%@140 BCPU@41C VDD_IN 1931/1931 VDD_CPU 231/231")
    assert old["power_w"] == {"VDD_IN": 1.931, "VDD_CPU": 0.231}
    new = tegrastats("RAM 1/2MB CPU [0%@729] GR3D_FREQ 0%@[305] cpu@45.8C/46.8C VDD_IN 3582mW/3500mW/3600mW")
    assert new["power_w"] == {"VDD_IN": 3.582}
    assert new["temperatures_c"]["cpu"] == 45.8


def recorded(test_data: Path, pattern: str) -> list[tuple[str, str]]:
    samples = sorted((test_data / "samples").glob(pattern))
    assert samples, pattern
    return [(path.stem, path.read_text()) for path in samples]


@pytest.mark.data
def test_recorded_modes_and_releases(test_data):
    modes = {name: power_mode(text) for name, text in recorded(test_data, "jetson_power/nvpmodel_q_*.txt")}
    assert modes == {
        "nvpmodel_q_agx_thor_default": "120W", "nvpmodel_q_agx_thor_maxn": "MAXN", "nvpmodel_q_nano_t210_5w": "5W",
        "nvpmodel_q_orin_nano_8gb": "15W", "nvpmodel_q_orin_nano_super_jp7.2.1": "25W",
        "nvpmodel_q_verbose_orin_nx_r36.5_40w": "40W",
    }  # fmt: skip
    for name, text in recorded(test_data, "jetson_power/nv_tegra_release_r*.txt"):
        release = l4t_release(text)
        assert release is not None
        assert f"_r{release}" in name


@pytest.mark.data
def test_recorded_clocks(test_data):
    found = {name: jetson_clocks(text) for name, text in recorded(test_data, "jetson_power/jetson_clocks_show_*.txt")}
    prefix = "jetson_clocks_show_"
    gpus = {name.removeprefix(prefix): one["gpu"] for name, one in found.items()}
    assert gpus["agx_orin_30w_before_jetson_clocks"] == (306, 612, 306)
    assert gpus["agx_orin_30w_after_jetson_clocks"] == (612, 612, 612)
    assert gpus["agx_thor_jp7_maxn_after_jetson_clocks"] == (1575, 1575, 1575)
    assert gpus["nano_t210_maxn"] == (76.8, 921.6, 153.6)
    assert found[f"{prefix}lanner_agx_orin_r36.4.3_50w"]["gpu_tpcs"] == 8
    assert all(one["emc"] for one in found.values())


@pytest.mark.data
def test_recorded_tegrastats(test_data):
    """Every line of every board has temperatures and rails; figures by hand for some."""
    lines = {name: text.splitlines() for name, text in recorded(test_data, "tegrastats/*.log")}
    for name, several in lines.items():
        for line in several:
            found = tegrastats(line)
            assert found["temperatures_c"], name
            assert found["power_w"], name
            assert all(-20 < c < 120 for c in found["temperatures_c"].values())
            assert all(0 <= w < 150 for w in found["power_w"].values())
    thor = tegrastats(lines["agx_thor_r39.2_jp7.2_load"][0])
    assert thor["power_w"] == {"VDD_GPU": 37.528, "VDD_CPU_SOC_MSS": 18.961, "VIN_SYS_5V0": 18.331, "VIN": 87.426}
    xavier = tegrastats(lines["agx_xavier_jp4_nomw"][0])
    assert xavier["power_w"] == {"GPU": 0.463, "CPU": 0.618, "SOC": 2.936, "CV": 0, "VDDRQ": 0.309, "SYS5V": 3.306}
    gated = tegrastats(lines["agx_thor_r38.4_idle_gpu_gated"][0])
    assert (gated["gpu_load"], gated["gpu_clock_mhz"]) == (None, 0)
    loaded = tegrastats(lines["orin_nano_super_r36.4.7_maxn_super_load_100ms"][0])
    assert (loaded["gpu_load"], loaded["gpu_clock_mhz"]) == (0.96, None)


def test_a_jetson_reports_its_mode_clocks_and_power(tmp_path, monkeypatch):
    """Scripts stand in for NVIDIA's programs and print what the real ones print."""
    root = planted(tmp_path / "root", JETSON | {
        "etc/nv_tegra_release": RELEASE, "sys/class/hwmon/hwmon3/oc1_event_cnt": "2\n",
        "sys/class/hwmon/hwmon3/oc3_event_cnt": "1\n",
    })  # fmt: skip
    for name, said in (("nvpmodel", "NV Power Mode: MODE_30W"), ("jetson_clocks", CLOCKS), ("tegrastats", ORIN)):
        (tmp_path / name).write_text(said)
        forever = "; exec sleep 60" if name == "tegrastats" else ""
        script(tmp_path / "bin" / name, f"cat {tmp_path / name}{forever}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert device_facts(root).jetson == JetsonFacts("36.4.7", "MODE_30W", (306, 612), 8)
    now = state(root).jetson
    assert (now.gpu_clock_mhz, now.overcurrent_events) == (407, 3)
    assert now.power_w["VDD_GPU_SOC"] == 3.15


def test_every_user_can_read_the_clock_of_the_gpu(tmp_path, monkeypatch):
    """jetson_clocks needs root, and tegrastats of JetPack 6 reports no clock, but the kernel does."""
    devfreq = "sys/class/devfreq/17000000.gpu"
    root = planted(tmp_path, JETSON | {
        "etc/nv_tegra_release": RELEASE, f"{devfreq}/cur_freq": "510000000\n", f"{devfreq}/min_freq": "306000000\n",
        f"{devfreq}/max_freq": "1020000000\n", "sys/class/devfreq/15480000.nvdec/cur_freq": "793600000\n",
    })  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    assert device_facts(root).jetson.gpu_clock_range_mhz == (306, 1020)
    assert state(root).jetson.gpu_clock_mhz == 510


def test_a_jetson_without_its_programs_reports_what_it_can(tmp_path, monkeypatch):
    root = planted(tmp_path, JETSON | {"etc/nv_tegra_release": RELEASE})
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = flat(device_facts(root)) | flat(state(root))
    assert facts["l4t"] == "36.4.7"
    unknown = ("power_mode", "gpu_clock_range_mhz", "gpu_sms", "gpu_clock_mhz", "power_w", "overcurrent_events")
    assert all(facts[name] is None for name in unknown)
