import errno
import os

import pytest

from catro_deploy.errors import RunFolderError, StorageError
from catro_deploy.runs.holding import hold

ELSEWHERE = "choose another file with --checkpoint"


def test_errors_say_how_to_use_another_place(tmp_path):
    def held(lock):
        with hold(lock, "there", ELSEWHERE):
            pass

    with hold(tmp_path / "lock", "there", ELSEWHERE), pytest.raises(RunFolderError) as caught:
        held(tmp_path / "lock")
    assert caught.value.hint == f"Wait until it finishes, or {ELSEWHERE}."
    with pytest.raises(RunFolderError) as caught:
        held(tmp_path / "lock" / "lock")
    assert caught.value.hint == "Choose another file with --checkpoint."
    held(tmp_path / "lock")


@pytest.mark.parametrize(
    ("number", "first"), [(errno.ENOSPC, "Free some space"), (errno.EROFS, "Change its permissions")]
)
def test_the_hint_fits_the_error(tmp_path, monkeypatch, number, first):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError) as caught, hold(tmp_path / "lock", "there", ELSEWHERE):
        pass
    assert caught.value.hint == f"{first}, or {ELSEWHERE}."
