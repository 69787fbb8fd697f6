"""The metadata of an ONNX file, read without the onnx package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catro_deploy.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["onnx_metadata"]

# From onnx.proto: ModelProto.metadata_props, StringStringEntryProto.key and .value.
METADATA_PROPS, KEY, VALUE = 14, 1, 2
# Wire types of protocol buffers.
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def onnx_metadata(path: Path) -> dict[str, str]:
    """Keys and values that the exporter wrote into the file ``path``.

    Raises:
        ModelError: it is not a whole ONNX file.
    """
    try:
        entries = [value for field, value in _fields(memoryview(path.read_bytes())) if field == METADATA_PROPS]
        pairs = [dict(_fields(entry)) for entry in entries]
        return {bytes(pair[KEY]).decode(): bytes(pair.get(VALUE, b"")).decode() for pair in pairs}
    except (OSError, IndexError, KeyError, ValueError):
        raise ModelError(f"{path} is not a whole ONNX file.", "Make it again: catro-deploy export") from None


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Numbers and contents of the fields of a message that have a length; others are skipped."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        wire = tag & 7
        if wire == LENGTH:
            length, place = _varint(message, place)
            if place + length > len(message):
                raise IndexError
            yield tag >> 3, message[place : place + length]
            place += length
        elif wire == VARINT:
            _, place = _varint(message, place)
        elif wire in (FIXED32, FIXED64):
            place += 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """A number, seven bits per byte, and the position after it."""
    value, shift = 0, 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
