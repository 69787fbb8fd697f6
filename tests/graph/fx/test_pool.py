"""Tensors kept outside the heap: nothing overlaps, the limit holds, and no holes are left between them."""

import subprocess
import sys

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from catro_deploy.errors import StorageError
from catro_deploy.graph.fx.pool import ALIGNED_BYTES, MemoryPool

LIMIT = 4096
DTYPES = [torch.float32, torch.float16, torch.int64, torch.bool]


@given(
    st.lists(
        st.one_of(st.tuples(st.integers(0, 300), st.sampled_from(DTYPES)), st.integers(0, 5)),
        max_size=30,
    )
)
@example([(233, torch.int64), 0, (273, torch.int64)])  # a free range at the end is extended into unused memory
def test_what_is_stored_stays_until_it_is_freed(steps):
    """Each step stores a tensor or frees a stored one."""
    pool, stored = MemoryPool(LIMIT), []
    for step in steps:
        if isinstance(step, int):
            if stored:
                start, value = stored.pop(step % len(stored))
                pool.free(start, value.nbytes)
            continue
        size, dtype = step
        value = torch.randint(0, 2, (size,)).to(dtype)
        start = pool.store(value)
        if start is None:
            assert stored  # each of these sizes fits alone
            continue
        assert start % ALIGNED_BYTES == 0
        assert start + value.nbytes <= LIMIT
        stored.append((start, value))
        for begin, kept in stored:
            assert torch.equal(pool.view(begin, kept.shape, kept.dtype), kept)


def test_all_of_the_limit_can_be_used_and_no_more():
    pool, half = MemoryPool(LIMIT), torch.ones(LIMIT // 8)
    first, second = pool.store(half), pool.store(half)
    assert (first, second) == (0, LIMIT // 2)
    assert pool.store(torch.ones(1)) is None
    pool.free(first, half.nbytes)
    assert pool.store(torch.ones(LIMIT // 4)) is None
    assert pool.store(half) == first


def test_a_view_is_no_copy():
    pool = MemoryPool(LIMIT)
    start = pool.store(torch.ones(2, 3))
    pool.view(start, torch.Size([2, 3]), torch.float32).zero_()
    assert torch.equal(pool.view(start, torch.Size([6]), torch.float32), torch.zeros(6))


def test_memory_that_the_system_does_not_have_is_reported():
    with pytest.raises(StorageError, match=r"1\.07e\+09 GiB\b[\s\S]*--activation-memory"):
        MemoryPool(2**60).store(torch.ones(1))


HOLES = """
import torch
from catro_deploy.graph.fx.activations import Activations, MemoryLimit

def heap_mib():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024

torch.ones(7 * 2**20)  # makes the C library take such tensors from the heap
kept = Activations(MemoryLimit(2**29), only_read=True)
before = heap_mib()
for batch in range(30):
    value = torch.ones(2**22 + 64 * batch)
    passing = torch.relu(value)
    kept.append(passing)
    del value, passing
print(heap_mib() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_short_lived_tensors_between_kept_ones_leave_no_holes():
    """Thirty tensors of 16 MiB are kept; with their headers in the heap, they would leave as many MiB of holes."""
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 300
