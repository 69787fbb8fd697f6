"""Devices that cannot be reached or lack what is needed: each error says what to do."""

import sys

import pytest

from catro_deploy.errors import DeviceError
from catro_deploy.transports.registry import Device
from tests.transports.far import FACTS, Far
from tests.transports.sshd import MISSING, know, make_key, script

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("ssh_that_knows_it")]


def refusal(device: Device) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        Far(device).result(FACTS)
    assert caught.value.exit_code == 1
    assert caught.value.hint
    return caught.value


def test_an_unknown_host_key_is_never_taken(server, device):
    known = (server.folder / "known_hosts").read_text()
    (server.folder / "known_hosts").write_text("")
    try:
        error = refusal(device)
    finally:
        (server.folder / "known_hosts").write_text(known)
    assert "ssh does not know its host key" in error.problem
    assert error.hint == "Log in once and compare the key: ssh far"


def test_a_changed_host_key_is_refused(server, device, tmp_path):
    known = (server.folder / "known_hosts").read_text()
    make_key(tmp_path / "other")
    know(server.folder, server.port, (tmp_path / "other.pub").read_text())
    try:
        error = refusal(device)
    finally:
        (server.folder / "known_hosts").write_text(known)
    assert "Its host key is not the one that ssh knows" in error.problem
    assert "ssh-keygen -R" in error.hint


def test_a_key_that_does_not_fit(server, device, tmp_path):
    right = (server.folder / "user_key").read_bytes()
    make_key(tmp_path / "wrong")
    (server.folder / "user_key").write_bytes((tmp_path / "wrong").read_bytes())
    try:
        error = refusal(device)
    finally:
        (server.folder / "user_key").write_bytes(right)
    assert "It denies the login" in error.problem
    assert "ssh-copy-id far" in error.hint


def test_nothing_listens(device):
    error = refusal(device.model_copy(update={"ssh": "ssh://127.0.0.1:1"}))
    assert "Nothing answers at its ssh port" in error.problem


def test_an_unknown_name(device):
    error = refusal(device.model_copy(update={"ssh": "no-such-host.invalid"}))
    assert "The host name cannot be resolved" in error.problem


def test_there_is_no_ssh(device, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refusal(device)
    assert "no ssh" in error.problem
    assert "openssh-client" in error.hint


def test_there_is_no_python(server, home):
    error = refusal(server.device(home, "/nowhere/python3"))
    assert "far (far) has no Python at '/nowhere/python3'" in error.problem
    assert "--python" in error.hint


# A Python that calls itself 3.6, and one that cannot parse the agent at all, as Python 2.
OLD = (
    f"""shift; exec {sys.executable} -c 'import sys; sys.version_info = (3, 6, 9); exec(sys.argv.pop(1))' "$@\"""",
    "echo 'SyntaxError: invalid syntax' >&2; exit 1",
)


@pytest.mark.parametrize("line", OLD, ids=["3.6", "2"])
def test_python_is_too_old(server, home, line):
    error = refusal(server.device(home, str(script(server.folder / "old-python", line))))
    assert "Python 3.8 or later" in error.problem
    assert error.hint.endswith("catro-deploy device add far --force --python PATH")
    assert not home.exists()


def test_an_error_of_the_agent_names_the_device(device, home):
    home.mkdir()
    home.chmod(0o777)
    error = refusal(device)
    assert error.problem.startswith(f"On far: {home} ")
    assert "all users can write to it" in error.problem
