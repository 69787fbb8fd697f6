"""A file whose freed ranges are overwritten: nothing overlaps, nothing is lost."""

import io
import tempfile

import pytest

from catro_deploy.errors import StorageError
from catro_deploy.graph.fx.spill import EXPECTED_BYTES_PER_SECOND, SpillFile


def test_what_was_stored_is_loaded_and_the_file_has_no_name(tmp_path):
    file = SpillFile(tmp_path)
    first, second = file.store(memoryview(b"first")), file.store(memoryview(b"second"))
    file.free(first, 5)
    third = file.store(memoryview(b"3rd"))
    assert (third, file.size_bytes, file.written_bytes) == (first, 11, 14)
    for start, content in ((second, b"second"), (third, b"3rd")):
        into = bytearray(len(content))
        file.load(start, memoryview(into))
        assert into == content
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match="truncated"):
        file.load(second, memoryview(bytearray(7)))


def test_a_full_disk_says_what_to_do(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: io.FileIO("/dev/full", "w+"))
    with pytest.raises(StorageError, match="activation-memory"):
        SpillFile().store(memoryview(b"four"))


def test_its_speed_is_measured_once_enough_has_been_moved(monkeypatch, tmp_path):
    file = SpillFile(tmp_path)
    clock = iter([0.0, 2.0, 10.0, 11.0])
    monkeypatch.setattr("catro_deploy.graph.fx.spill.time.perf_counter", lambda: next(clock))
    file.store(memoryview(bytes(2**25)))
    assert file.bytes_per_second == EXPECTED_BYTES_PER_SECOND
    file.store(memoryview(bytes(2**26)))
    assert file.bytes_per_second == (2**25 + 2**26) / 3
