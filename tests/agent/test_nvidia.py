"""Output of nvidia-smi: recorded from a dozen GPUs and drivers, and a short one in the same format."""

import pytest

from catro_deploy.agent.device import GpuState, JetsonState
from catro_deploy.agent.measure import remarks, timing
from catro_deploy.agent.nvidia import gpus, nvidia_smi
from catro_deploy.agent.results import Speedup
from tests.agent.measured import facts_of
from tests.agent.test_agent import PROTOCOL
from tests.transports.sshd import script

SHORT = b"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>570.1</driver_version><cuda_version>12.8</cuda_version>
  <gpu id="00000000:01:00.0">
    <product_name>Acme GPU</product_name>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_sync_boost>Not Active</clocks_event_reason_sync_boost>
    </clocks_event_reasons>
    <temperature><gpu_temp>42 C</gpu_temp></temperature>
    <gpu_power_readings>
      <average_power_draw>11.60 W</average_power_draw><instant_power_draw>11.63 W</instant_power_draw>
    </gpu_power_readings>
    <clocks><sm_clock>210 MHz</sm_clock><mem_clock>N/A</mem_clock></clocks>
    <max_clocks><sm_clock>2145 MHz</sm_clock></max_clocks>
  </gpu>
</nvidia_smi_log>
"""


def test_by_hand():
    assert nvidia_smi(SHORT) == [GpuState(
        name="Acme GPU", driver="570.1", cuda="12.8", clock_mhz=210, memory_clock_mhz=None,
        highest_clock_mhz=2145, temperature_c=42, power_w=11.63, throttled=("sw_power_cap",),
    )]  # fmt: skip


@pytest.mark.parametrize("said", [b"", b"NVIDIA-SMI has failed", SHORT[:200], b"<other/>"])
def test_what_is_no_answer_is_no_gpu(said):
    assert nvidia_smi(said) == []


def test_the_program_may_be_missing_or_fail(tmp_path):
    assert gpus([str(tmp_path / "nowhere")]) == []
    assert gpus([str(script(tmp_path / "bin" / "failing", "echo 'NVIDIA-SMI has failed'; exit 9"))]) == []
    (tmp_path / "said.xml").write_bytes(SHORT)
    works = script(tmp_path / "bin" / "works", f"cat {tmp_path / 'said.xml'}")
    assert [gpu.name for gpu in gpus([str(works)])] == ["Acme GPU"]


@pytest.mark.data
def test_recorded_gpus(test_data):
    found = {path.stem: nvidia_smi(path.read_bytes()) for path in (test_data / "samples/nvidia_smi").glob("*.xml")}
    assert len(found) >= 10
    for name, several in found.items():
        for gpu in several:
            assert gpu.name, name
            assert gpu.clock_mhz is None or 0 <= gpu.clock_mhz < 3500
            assert gpu.temperature_c is None or 10 < gpu.temperature_c < 110
    (a100,) = found["telegraf_a100-sxm4-v12"][:1]
    assert (a100.name, a100.driver, a100.clock_mhz, a100.power_w) == (
        "NVIDIA A100-SXM4-80GB", "535.54.03", 1275, 67.03,
    )  # fmt: skip
    assert found["telegraf_rtx-3060-v12"][0].power_w == 11.63
    assert found["telegraf_a10g"][0].throttled == ()


def remarks_on(**facts) -> list[str]:
    steady = timing([[10.0] * 100])
    return remarks({"original": steady, "pruned": steady}, Speedup(1.55, (1.5, 1.6)), PROTOCOL, facts_of(**facts))


def on_jetson(**fields: tuple[float | None, float | None]) -> tuple[JetsonState, JetsonState]:
    """The states before and after; all other fields are unknown."""
    unknown = {"gpu_clock_mhz": None, "power_w": None, "overcurrent_events": None}
    return tuple(JetsonState(**unknown | {name: pair[when] for name, pair in fields.items()}) for when in (0, 1))


def test_a_gpu_that_throttled_is_reported_if_it_was_used():
    state = {"gpus_after": tuple(nvidia_smi(SHORT))}
    assert remarks_on(providers=("CPUExecutionProvider",), **state) == []
    (remark,) = remarks_on(providers=("TensorrtExecutionProvider", "CPUExecutionProvider"), **state)
    assert remark == "The GPU's clock was lowered when the measurement ended: sw_power_cap."


def test_a_clock_that_changed_is_reported():
    def moved(before: float | None, after: float) -> list[str]:
        return remarks_on(providers=("tensorrt",), jetson=on_jetson(gpu_clock_mhz=(before, after)))

    (remark,) = moved(306.0, 612.0)
    assert "from 306 to 612 MHz" in remark
    assert moved(612.0, 612.0) == moved(None, 612.0) == []


def test_a_board_that_drew_too_much_is_reported_whatever_was_used():
    (remark,) = remarks_on(jetson=on_jetson(overcurrent_events=(2, 5)))
    assert "throttled 3 times" in remark
    assert remarks_on(jetson=on_jetson(overcurrent_events=(2, 2))) == []
