"""A file whose freed ranges are written over: nothing overlaps, nothing is lost."""

import io
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.errors import StorageError
from catro_deploy.graph.spill import EXPECTED_BYTES_PER_SECOND, FreeRanges, SpillFile


@given(st.lists(st.one_of(st.integers(0, 9), st.integers(-8, -1))))
def test_ranges_in_use_never_overlap_and_free_ones_are_used_again(steps):
    ranges, used = FreeRanges(), []
    for step in steps:  # a size to take, or which range in use to free
        if step >= 0:
            most, free_bytes = ranges.end_bytes, ranges.free_bytes
            start = ranges.take(step)
            assert all(start + step <= other or other + size <= start for other, size in used if size and step)
            used.append((start, step))
            assert ranges.end_bytes in (most, most + step)
            assert ranges.free_bytes == free_bytes - (step if ranges.end_bytes == most else 0)
        elif used:
            ranges.give_back(*used.pop(step % len(used)))
        assert ranges.free_bytes + sum(size for _, size in used) == ranges.end_bytes
    for start, size in used:
        ranges.give_back(start, size)
    assert ranges.take(ranges.end_bytes) == 0  # all is one range again


def test_the_first_range_that_is_large_enough_is_taken():
    ranges = FreeRanges()
    starts = [ranges.take(size) for size in (10, 1, 20, 1, 10)]
    assert starts == [0, 10, 11, 31, 32]
    for start, size in ((0, 10), (11, 20), (32, 10)):
        ranges.give_back(start, size)
    assert [ranges.take(size) for size in (15, 10, 5, 11)] == [11, 0, 26, 42]


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
    with pytest.raises(StorageError, match="cut short"):
        file.load(second, memoryview(bytearray(7)))


def test_a_full_disk_says_what_to_do(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: io.FileIO("/dev/full", "w+"))
    with pytest.raises(StorageError, match=r"(?s)No space left.*activation-memory"):
        SpillFile().store(memoryview(b"four"))


def test_its_speed_is_measured_once_enough_has_been_moved(monkeypatch, tmp_path):
    file = SpillFile(tmp_path)
    clock = iter([0.0, 2.0, 10.0, 11.0])
    monkeypatch.setattr("catro_deploy.graph.spill.time.perf_counter", lambda: next(clock))
    file.store(memoryview(bytes(2**25)))
    assert file.bytes_per_second == EXPECTED_BYTES_PER_SECOND
    file.store(memoryview(bytes(2**26)))
    assert file.bytes_per_second == (2**25 + 2**26) / 3
