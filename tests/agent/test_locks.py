import threading
import time

import pytest

from catro_deploy.agent import locks
from catro_deploy.agent.locks import alone, is_locked, locked


def test_one_process_holds_a_lock_and_says_who(tmp_path):
    path = tmp_path / "lock"
    with locked(path, "mine") as mine, locked(path, "yours") as yours:
        assert (mine, yours) == (True, False)
        assert is_locked(path)
        assert path.read_text() == "mine"
        assert path.stat().st_mode & 0o077 == 0
    assert not is_locked(path)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"), locked(tmp_path / "lock", "mine"):
        pass
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_waiting_user_learns_once_who_holds_the_device(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    path, holders, order = tmp_path / "device.lock", [], []

    def measure():
        with alone(path, "second", holders.append):
            order.append("second")

    waiting = threading.Thread(target=measure)
    with alone(path, "first", holders.append):
        waiting.start()
        time.sleep(0.1)
        order.append("first")
    waiting.join(5)
    assert order == ["first", "second"]
    assert holders == ["first"]
