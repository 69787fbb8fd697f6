import os
import subprocess
import sys
from threading import Thread

import pytest

from catro_deploy import memory
from catro_deploy.memory import MMAP_MAX, ORDINARY, REUSING, reused_pages

PAGE_BYTES = 4096
TENSOR_BYTES = 48 * 2**20
"""More than glibc ever retains by default."""
ROUNDS = 8

needs_glibc = pytest.mark.skipif(
    memory._adjustable_libc(sys.platform, {}) is None, reason="only glibc's malloc can be set up"
)


class Recorder:
    """Stands in for the C library and records the calls."""

    def __init__(self):
        self.calls = []

    def mallopt(self, parameter, value):
        self.calls.append((parameter, value))

    def malloc_trim(self, pad):
        self.calls.append(("trim", pad.value))


ENTERED = list(REUSING.items())
LEFT = [*ORDINARY.items(), ("trim", 0)]


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(memory, "_MALLOC", memory._Malloc(recorder))
    return recorder


# In a separate process: memory that other tests left in the heap may also be used for tensors outside the block.
COUNTED = f"""
import resource, torch
from catro_deploy.memory import reused_pages

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({ROUNDS}):
        torch.full(({TENSOR_BYTES},), 1, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

outside = page_faults()
with reused_pages():
    page_faults()  # small objects between the first tensors leave holes that are too small
    page_faults()
    print(outside, page_faults())
"""


@needs_glibc
def test_pages_are_reused_in_a_block_and_taken_each_time_outside():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True, env=environment)
    outside, inside = map(int, done.stdout.split())
    each = TENSOR_BYTES / PAGE_BYTES
    assert inside < each
    # If the system uses huge pages by default, one fault maps many pages.
    assert outside > (ROUNDS - 1) * each or outside < each / 10


def test_the_outermost_block_alone_sets_malloc_up(recorder):
    with reused_pages():
        with reused_pages():
            assert recorder.calls == ENTERED
        assert recorder.calls == ENTERED
    assert recorder.calls == ENTERED + LEFT


def test_a_block_of_another_thread_holds_until_it_ends(recorder):
    with reused_pages():
        other = reused_pages()
        thread = Thread(target=other.__enter__)
        thread.start()
        thread.join()
    assert recorder.calls == ENTERED
    other.__exit__(None, None, None)
    assert recorder.calls == ENTERED + LEFT


def test_malloc_is_as_usual_after_an_error(recorder):
    with pytest.raises(ValueError, match="no images"), reused_pages():
        raise ValueError("no images")
    assert recorder.calls == ENTERED + LEFT
    assert dict(LEFT)[MMAP_MAX] > 0


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_nothing_happens_without_glibc(monkeypatch, platform):
    monkeypatch.setattr(memory, "_MALLOC", memory._Malloc(memory._adjustable_libc(platform, {})))
    with reused_pages():
        assert memory._MALLOC._libc is None


@pytest.mark.parametrize("missing", ["gnu_get_libc_version", "mallopt", "malloc_trim"])
def test_a_library_without_the_functions_is_left_alone(monkeypatch, missing):
    library = type("Library", (), dict.fromkeys({"gnu_get_libc_version", "mallopt", "malloc_trim"} - {missing}))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: library())
    assert memory._adjustable_libc("linux", {}) is None


@pytest.mark.parametrize(
    ("environment", "left_alone"),
    [
        ({"MALLOC_MMAP_MAX_": "0"}, True),
        ({"MALLOC_TRIM_THRESHOLD_": "1000000"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, False),
        ({"MALLOC_ARENA_MAX": "2"}, False),
    ],
)
@needs_glibc
def test_what_the_user_set_up_is_kept(environment, left_alone):
    assert (memory._adjustable_libc("linux", environment) is None) == left_alone
