import errno
import hashlib
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from catro_deploy.errors import StorageError, UsageError
from catro_deploy.files import (
    UNFINISHED,
    file_hash,
    replacing,
    require_regular,
    require_utf8,
    text_hash,
    write_bytes,
    write_json,
    write_text,
)


def test_content_is_written_whole_and_nothing_else_is_left(tmp_path):
    write_text(tmp_path / "deep" / "a.txt", "äöü")
    assert (tmp_path / "deep" / "a.txt").read_bytes() == "äöü".encode()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.txt"]


def test_a_failed_block_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_of_the_system_are_reported_with_the_files_name(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=str(tmp_path / "file")):
        write_bytes(tmp_path / "file" / "below", b"")


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")

    def fill():
        with replacing(path) as temporary, temporary.open("wb") as out:
            out.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError, match="No space left on device") as error:
        fill()
    assert "untouched" in error.value.hint
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_real_limit_of_the_system_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")
    program = (
        "import sys, pathlib; from catro_deploy.files import write_bytes\n"
        f"write_bytes(pathlib.Path({str(path)!r}), bytes(100_000))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "StorageError" in done.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mask_for_new_files_is_respected(tmp_path):
    old = os.umask(0o077)
    try:
        write_text(tmp_path / "a", "")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_unfinished_files_can_be_recognised(tmp_path):
    with replacing(tmp_path / "plan.json"):
        assert [p.name for p in tmp_path.glob(UNFINISHED)] == [f".plan.json.{os.getpid()}.part"]


def test_json_with_nan_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_hashes(tmp_path):
    write_bytes(tmp_path / "a", b"abc")
    assert file_hash(tmp_path / "a") == text_hash("abc") == hashlib.sha256(b"abc").hexdigest()


def test_only_regular_files_and_what_is_not_there_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for fine in ("file", "link", "nothing"):
        require_regular(tmp_path / fine)
    for endless in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file") as caught:
            require_regular(endless)
        assert caught.value.errno == errno.EINVAL


def test_a_path_that_is_not_utf8_is_shown_with_its_bytes():
    require_utf8(Path("/home/jörg/日本"), UsageError)
    with pytest.raises(UsageError, match=re.escape(r"/home/j\xf6rg is not valid UTF-8")):
        require_utf8(Path(os.fsdecode(b"/home/j\xf6rg")), UsageError)


def test_text_with_other_bytes_has_a_hash():
    assert text_hash(os.fsdecode(b"\xf6")) == hashlib.sha256(b"\xf6").hexdigest()
