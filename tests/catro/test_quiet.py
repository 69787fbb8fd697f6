"""What compiled code prints does not reach the standard output."""

import ctypes
import sys

import pytest

from catro_deploy.catro.quiet import printing_nothing


def test_only_output_within_the_block_is_discarded(capfd):
    libc = ctypes.CDLL(None)
    sys.stdout.write("before\n")
    libc.puts(b"also before")
    with printing_nothing():
        libc.puts(b"noise")
    libc.puts(b"after")
    libc.fflush(None)
    assert capfd.readouterr().out.split("\n") == ["before", "also before", "after", ""]


def test_after_an_error_output_is_as_before(capfd):
    with pytest.raises(ValueError, match="no network"), printing_nothing():
        raise ValueError("no network")
    sys.stdout.write("after\n")
    assert capfd.readouterr().out == "after\n"
