"""Files on their way to a device: torn, changed, and too large for its disk."""

import io
import sys
import tarfile
from dataclasses import replace

import pytest

from catro_deploy.errors import DeviceError, FaultError, StorageError
from catro_deploy.files import file_hash
from catro_deploy.transports import ssh
from catro_deploy.transports.agent_file import agent_file
from tests.agent.test_agent import PROTOCOL, job_for
from tests.transports.far import FACTS, Far, is_gone
from tests.transports.sshd import MISSING, script

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("ssh_that_knows_it")]


def test_half_of_a_file_is_refused_and_what_was_whole_stays(far, tmp_path, home):
    far.result(FACTS)
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    whole.write_bytes(b"w" * 1000)
    torn.write_bytes(b"t" * 100_000)
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w") as tar:
        for path in (whole, torn):
            tar.add(path, file_hash(path))
    with (
        ssh._connected(far.device, agent_file(), far.notes.append) as reached,
        pytest.raises(FaultError, match="not all of them"),
    ):
        reached.call("put", stdin=sent.getvalue()[:50_000])
    assert [path.name for path in (home / "files").iterdir()] == [file_hash(whole)]


def test_a_file_with_another_content_is_refused(far, tmp_path, home):
    far.result(FACTS)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"damaged on the way")
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w") as tar:
        tar.add(damaged, 64 * "0")
    with (
        ssh._connected(far.device, agent_file(), far.notes.append) as reached,
        pytest.raises(FaultError, match="arrived damaged"),
    ):
        reached.call("put", stdin=sent.getvalue())
    assert not list((home / "files").iterdir())


@pytest.mark.parametrize("content", [b"", agent_file()[:1000], b"print('some other program')"])
def test_a_damaged_agent_is_sent_again(far, home, content):
    far.result(FACTS)
    (agent,) = home.glob("agent-*.pyz")
    agent.write_bytes(content)
    assert far.result(FACTS).device.python


def test_a_full_disk_is_told(server, home, tmp_path):
    """Files may not grow beyond 96 kB there: one that is sent, or the answer, in which each inference is a number."""
    limited = script(server.folder / "limited-python", f'ulimit -f 192; exec {sys.executable} "$@"')
    far = Far(server.device(home, str(limited)))
    too_much = replace(PROTOCOL, seconds=3.0)
    for size, protocol in (({"channels": 128, "layers": 2}, PROTOCOL), ({}, too_much)):
        job = job_for(tmp_path, original=size, pruned={}, protocol=protocol)
        with pytest.raises(
            StorageError, match=r"could not be written: File too large; \d+ MiB are free there"
        ) as caught:
            far.result(job, tmp_path)
        assert "--folder" in caught.value.hint
    assert is_gone(home)


def test_a_disk_too_full_for_the_agent_is_told(server, home):
    limited = script(server.folder / "limited-python", f'ulimit -f 8; exec {sys.executable} "$@"')
    with pytest.raises(DeviceError, match=r"agent could not be written to .*: File too large") as caught:
        Far(server.device(home, str(limited))).result(FACTS)
    assert "Traceback" not in caught.value.problem


def test_a_folder_that_cannot_be_made_is_told(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeviceError, match=r"far \(far\) ended a call with code 1(.|\n)*Not a directory"):
        Far(server.device(tmp_path / "file" / "far")).result(FACTS)
