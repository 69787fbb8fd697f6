"""The user's devices: kept, found, and never mixed up."""

import re

import pytest
from pydantic import ValidationError

from catro_deploy.errors import TargetError
from catro_deploy.resources import config_folder
from catro_deploy.transports.registry import Device, add_device, find_device, load_devices, remove_device

PRESS = Device(name="press-3", ssh="press-3.local", target="x86-cpu")
VAN = Device(name="van", ssh="ubuntu@10.0.0.7", target="my box.toml", python="venv/bin/python", folder='a "b"')


@pytest.fixture(autouse=True)
def own_config(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))


def test_what_is_added_is_found_again():
    assert load_devices() == {}
    for device in (VAN, PRESS):
        add_device(device)
    assert list(load_devices().values()) == [PRESS, VAN]
    assert find_device("van") == VAN
    assert find_device("press-3").python == "python3"
    remove_device("press-3")
    assert list(load_devices()) == ["van"]


def test_a_name_is_taken_once_unless_it_is_forced():
    add_device(PRESS)
    other = PRESS.model_copy(update={"ssh": "elsewhere"})
    with pytest.raises(TargetError, match=r"press-3\.local") as caught:
        add_device(other)
    assert "--force" in caught.value.hint
    add_device(other, force=True)
    assert find_device("press-3").ssh == "elsewhere"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "../x", "[x]", "ä"])
def test_names_that_cannot_be(name):
    with pytest.raises(TargetError, match=re.escape(repr(name))):
        add_device(PRESS.model_copy(update={"name": name}))


@pytest.mark.parametrize("ssh", ["", "-oProxyCommand=reboot", "host name", "host\n"])
def test_destinations_that_are_none(ssh):
    with pytest.raises(ValidationError):
        Device(name="x", ssh=ssh, target="x86-cpu")


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("python3", "python3 -m pip"),
        ("/opt/my venv/bin/python", "'/opt/my venv/bin/python' -m pip"),
        ("venv/bin/python", "~/venv/bin/python -m pip"),
        ("~/venv/bin/python", "~/venv/bin/python -m pip"),
    ],
)
def test_commands_of_hints_are_those_of_the_device(python, command):
    device = VAN.model_copy(update={"python": python})
    assert device.fitted("python3 -m pip install numpy") == f"{command} install numpy"
    assert device.fitted("device add NAME --force") == "device add van --force"


@pytest.mark.parametrize("known", [(), (PRESS, VAN)])
def test_a_missing_device_lists_the_known_ones(known):
    for device in known:
        add_device(device)
    with pytest.raises(TargetError, match="press-3, van" if known else "truck") as caught:
        find_device("truck")
    assert "catro-deploy device add truck" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[far\n", r"line \d+"),
        ("far = 3\n", "read: "),
        ('[far]\nssh = "far"\n', "target: "),
        ('[far]\nssh = "far"\ntarget = "x86-cpu"\nport = 22\n', "port: "),
    ],
)
def test_a_file_that_is_damaged_is_named(text, reason):
    folder = config_folder()
    assert folder is not None
    folder.mkdir()
    (folder / "devices.toml").write_text(text)
    with pytest.raises(TargetError, match=reason) as caught:
        load_devices()
    assert str(folder / "devices.toml") in caught.value.problem
    assert (folder / "devices.toml").read_text() == text
