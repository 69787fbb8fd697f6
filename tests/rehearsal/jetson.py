"""What a Jetson has besides the user space: files of its kernel and release, and scripts as NVIDIA's programs.

The emulator looks for each file in the folder /planted first, so that they appear in /proc and /sys, too.
"""

import os
from pathlib import Path

from tests.agent.test_jetson import CLOCKS, ORIN, RELEASE

__all__ = ["plant"]

MODEL = "NVIDIA Jetson AGX Orin Developer Kit"
DEVFREQ = "sys/class/devfreq/17000000.gpu"
MONITOR = "sys/class/hwmon/hwmon0"
FILES = {
    "etc/nv_tegra_release": RELEASE,
    "proc/device-tree/model": f"{MODEL}\0",
    "sys/class/hwmon/hwmon1/oc1_event_cnt": "2\n",
    f"{DEVFREQ}/min_freq": "306000000\n",
    f"{DEVFREQ}/max_freq": "612000000\n",
    f"{DEVFREQ}/cur_freq": "408000000\n",
    f"{DEVFREQ}/governor": "nvhost_podgov\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "47250\n",
    "said/nvpmodel": "NV Power Mode: MODE_30W\n2\n",
    "said/jetson_clocks": CLOCKS,
}
SENSORS = {
    f"{MONITOR}/name": "ina3221\n",
    f"{MONITOR}/in1_label": "VDD_GPU_SOC\n",
    f"{MONITOR}/in1_input": "19000\n",
    f"{MONITOR}/curr1_input": "300\n",
    f"{MONITOR}/in2_label": "VDD_CPU_CV\n",
    f"{MONITOR}/in2_input": "19000\n",
    f"{MONITOR}/curr2_input": "100\n",
}
PROGRAMS = {
    "nvpmodel": "exec cat /planted/said/nvpmodel",
    "jetson_clocks": """\
if [ "$(id -u)" != 0 ]; then
    echo "Error: Run this script(/usr/bin/jetson_clocks) as a root user" >&2
    exit 1
fi
exec cat /planted/said/jetson_clocks""",
    "tegrastats": """\
while true; do
    while read -r line; do echo "$line"; sleep 0.1; done < /planted/said/tegrastats
done""",
}


def plant(folder: Path, *, sensors: bool) -> None:
    """Write a Jetson's files and programs into ``folder``; tegrastats repeats recorded output endlessly.

    With power ``sensors``, every bench measures the energy as well, which takes half a minute.
    """
    for name, content in (FILES | (SENSORS if sensors else {}) | {"said/tegrastats": _recorded()}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)


def _recorded() -> str:
    """Output of tegrastats on an AGX Orin: a recording if available, else one line."""
    data = os.environ.get("CATRO_TEST_DATA", "")
    recording = Path(data, "samples/tegrastats/agx_orin_64gb_r36.4.4_nvenc.log")
    return recording.read_text() if data and recording.is_file() else ORIN
