"""Lines of the code that defines the network: the user's or a library's, not PyTorch's or this package's."""

import os
import sys
import traceback
from pathlib import Path

import torch

__all__ = ["users_line", "users_place"]

NOT_THE_USERS = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parent) + os.sep, "<")


def users_place() -> tuple[str, tuple[int, int]]:
    """File and line of the user's code that is running, and an identifier of the instruction."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_THE_USERS):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}", (id(frame), frame.f_lasti)


def users_line(error: BaseException) -> str:
    """File, number and text of the last line of user code that ``error`` passed through; empty if there is none."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(NOT_THE_USERS)
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line})" if frames else ""
