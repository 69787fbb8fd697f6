import pytest

from catro_deploy.agent.locks import is_locked, locked


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
