"""Files sent to a device: cut off, changed, and too large for its disk."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest

from catro_deploy.errors import DeviceError, FaultError, StorageError
from catro_deploy.transports.agent_file import agent_file
from catro_deploy.transports.connection import connected
from tests.agent.test_agent import PROTOCOL, job_for
from tests.transports.far import FACTS, Far, is_gone
from tests.transports.sshd import MISSING, script

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("ssh_that_knows_it")]


def put(far: Far, content: bytes, *arguments: object) -> None:
    with connected(far.device, agent_file(), far.notes.append) as reached:
        reached.run("put", *[str(one) for one in arguments], stdin=content)


def test_half_of_a_file_is_refused_and_can_be_continued(far, home):
    far.result(FACTS)
    whole = bytes(range(256)) * 400
    digest = hashlib.sha256(whole).hexdigest()
    with pytest.raises(FaultError, match=r"\b50000\b.*\b102400\b"):
        put(far, whole[:50_000], "token", digest, len(whole), 0)
    with connected(far.device, agent_file(), far.notes.append) as reached:
        assert reached.run("lacking", "token", stdin=json.dumps([digest]).encode()) == {digest: 50_000}
        assert reached.run("lacking", "other", stdin=json.dumps([digest]).encode()) == {digest: 0}
    put(far, whole[50_000:], "token", digest, len(whole), 50_000)
    (file,) = (home / "files").iterdir()
    assert file.name == digest
    assert file.read_bytes() == whole


def test_a_file_with_another_content_is_refused(far, home):
    far.result(FACTS)
    with pytest.raises(FaultError, match=r"\b18 bytes\b.*SHA-256"):
        put(far, b"damaged on the way", "token", 64 * "0", 18, 0)
    assert not list((home / "files").iterdir())


@pytest.mark.parametrize("content", [b"", agent_file()[:1000], b"import os; os.mkdir(__file__ + '.ran')"])
def test_a_damaged_agent_is_not_run_and_sent_again(far, home, content):
    far.result(FACTS)
    (agent,) = home.glob("agent-*.pyz")
    agent.write_bytes(content)
    assert far.result(FACTS).device.python
    assert not list(home.glob("*.ran"))


def test_a_full_disk_is_reported(server, home, tmp_path):
    """Files there may not exceed 112 KiB: one that is sent, or the result, which has a number for each inference."""
    limited = script(server.folder / "limited-python", f'ulimit -f 224; exec {sys.executable} "$@"')
    far = Far(server.device(home, str(limited)))
    too_much = replace(PROTOCOL, seconds=3.0)
    for size, protocol in (({"channels": 128, "layers": 2}, PROTOCOL), ({}, too_much)):
        job = job_for(tmp_path, original=size, pruned={}, protocol=protocol)
        with pytest.raises(StorageError, match=r"File too large.*\d+ MiB") as caught:
            far.result(job, tmp_path)
        assert caught.value.hint.endswith("catro-deploy device add far --force --folder PATH")
    assert is_gone(home)


def test_a_disk_too_full_for_the_agent_is_reported(server, home):
    limited = script(server.folder / "limited-python", f'ulimit -f 8; exec {sys.executable} "$@"')
    with pytest.raises(DeviceError, match="File too large") as caught:
        Far(server.device(home, str(limited))).result(FACTS)
    assert "Traceback" not in caught.value.problem


def test_a_folder_that_cannot_be_made_is_reported(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeviceError, match=r"/file/far\b.*Not a directory"):
        Far(server.device(tmp_path / "file" / "far")).result(FACTS)
