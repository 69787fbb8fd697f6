"""What a killed measurement leaves behind, and how it is read."""

from pathlib import Path

import pytest

from catro_deploy.agent.events import NodeTimes, Sample
from catro_deploy.errors import StorageError
from catro_deploy.latency.profile.log import SampleLog


def sample(name: str, seconds: float = 0.5) -> Sample:
    return Sample(name, seconds, nodes=(NodeTimes("conv::0", (1.25,)),), whole_us=None, reference_us=(2.5,))


@pytest.fixture
def file(tmp_path) -> Path:
    log = SampleLog(tmp_path / "folder" / "samples.jsonl", "protocol")
    for name in ("sweep/0", "sweep/1", "square/0"):
        log.add(sample(name))
    return log.path


def test_samples_are_there_again(file):
    log = SampleLog(file, "protocol")
    assert log["sweep/1"] == sample("sweep/1")
    assert "square/0" in log
    assert "square/1" not in log
    assert log.seconds == 1.5


def test_a_half_last_line_is_dropped_and_written_over(file):
    whole = file.read_text()
    file.write_text(whole + '{"name": "square/1", "sec')
    log = SampleLog(file, "protocol")
    assert "square/1" not in log
    assert file.read_text() == whole
    log.add(sample("square/1"))
    assert SampleLog(file, "protocol")["square/1"] == sample("square/1")


@pytest.mark.parametrize("broken", [b"\0\0\0\0\n", b"\xff\xfe\n", b"[1, 2]\n", b'{"seconds": 1}\n', b"3\n"])
def test_what_follows_a_broken_line_is_dropped(file, broken):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], broken, *lines[2:]]))
    log = SampleLog(file, "protocol")
    assert "sweep/0" in log
    assert "sweep/1" not in log


def test_samples_of_another_protocol_are_not_used(file):
    assert "sweep/0" not in SampleLog(file, "another")
    assert file.read_text() == "another\n"


@pytest.mark.parametrize("content", ["", "protocol", "\n"])
def test_a_file_without_samples(file, content):
    file.write_text(content)
    log = SampleLog(file, "protocol")
    assert "sweep/0" not in log
    assert log.seconds == 0


def test_delete_takes_the_file_away(file):
    log = SampleLog(file, "protocol")
    log.delete()
    assert not file.exists()
    assert "sweep/0" not in log


def test_a_full_disk_is_reported_and_measurements_are_kept(file):
    log = SampleLog(file, "protocol")
    log.path = Path("/dev/full")
    with pytest.raises(StorageError, match="No space left") as caught:
        log.add(sample("square/1"))
    assert "continues from there" in caught.value.hint
    assert "square/0" in SampleLog(file, "protocol")


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        SampleLog(tmp_path / "file" / "samples.jsonl", "protocol")
