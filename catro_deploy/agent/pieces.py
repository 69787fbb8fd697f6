"""Large byte strings in JSON, as pieces of base64."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from catro_deploy.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PIECE_BYTES", "decoded", "pieces"]

PIECE_BYTES = 1 << 20
"""Largest size of one piece in bytes, before it is encoded."""


def pieces(content: bytes) -> Iterator[str]:
    """``content`` as pieces in order, each in base64."""
    for start in range(0, len(content), PIECE_BYTES):
        yield base64.b64encode(content[start : start + PIECE_BYTES]).decode()


def decoded(piece: str) -> bytes:
    """The bytes of one piece.

    Raises:
        MessageError: it is not base64.
    """
    try:
        return base64.b64decode(piece, validate=True)
    except (binascii.Error, ValueError):
        raise MessageError("A piece of a file or of logits is not base64.", "Run it again on the device.") from None
