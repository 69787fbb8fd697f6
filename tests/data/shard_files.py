"""Shards as WebDataset writes them, made by hand: members are stored one after the other."""

import io
import tarfile
from pathlib import Path

from PIL import Image

SHADES = (50, 100, 150)
"""The grey level of the images of each class."""


def jpeg(label: int, number: int = 0) -> bytes:
    """A grey image in the shade of its class, whose width encodes its number."""
    stream = io.BytesIO()
    Image.new("L", (8 + number, 8), SHADES[label % len(SHADES)]).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    """Write a tar archive of files with these contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def samples(labels: list[int], folder: str = "") -> dict[str, bytes]:
    """Images and .cls files with their labels, each pair under one key."""
    return {
        f"{folder}{number:04}.{suffix}": content
        for number, label in enumerate(labels)
        for suffix, content in (("jpg", jpeg(label, number)), ("cls", str(label).encode()))
    }
