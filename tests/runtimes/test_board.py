"""The module of a Jetson, and its power mode."""

from catro_deploy.runtimes import board
from catro_deploy.runtimes.board import board_identity


def test_a_jetson_has_a_module_and_a_power_mode(tmp_path, monkeypatch):
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"NVIDIA Jetson Orin Nano Developer Kit\0")
    monkeypatch.setattr(board, "_nvpmodel", lambda: "NV Power Mode: 15W\n0\n")
    assert board_identity(tmp_path) == {"module": "NVIDIA Jetson Orin Nano Developer Kit", "power_mode": "15W"}


def test_other_computers_have_neither(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert board_identity(tmp_path) == {}
