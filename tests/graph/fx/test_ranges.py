"""Ranges in use never overlap, and freed ranges are used again."""

from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.graph.fx.ranges import FreeRanges


@given(st.lists(st.one_of(st.integers(0, 9), st.integers(-8, -1))))
def test_ranges_in_use_never_overlap_and_free_ones_are_used_again(steps):
    ranges, used = FreeRanges(), []
    for step in steps:  # a size to allocate, or which range in use to free
        if step >= 0:
            most, free_bytes = ranges.end_bytes, ranges.free_bytes
            start = ranges.take(step)
            assert all(start + step <= other or other + size <= start for other, size in used if size and step)
            used.append((start, step))
            assert most <= ranges.end_bytes <= most + step
            assert ranges.free_bytes == free_bytes - (step - (ranges.end_bytes - most))
        elif used:
            ranges.give_back(*used.pop(step % len(used)))
        assert ranges.free_bytes + sum(size for _, size in used) == ranges.end_bytes
    for start, size in used:
        ranges.give_back(start, size)
    assert ranges.take(ranges.end_bytes) == 0  # everything is one range again


def test_the_first_range_that_is_large_enough_is_taken():
    ranges = FreeRanges()
    starts = [ranges.take(size) for size in (10, 1, 20, 1, 10)]
    assert starts == [0, 10, 11, 31, 32]
    for start, size in ((0, 10), (11, 20), (32, 10)):
        ranges.give_back(start, size)
    assert [ranges.take(size) for size in (15, 10, 5, 11)] == [11, 0, 26, 32]  # the last extends the end by a byte
