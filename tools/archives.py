"""Pack a folder of small images into archives of limited size, for machines to which only small files can be copied.

    python -m tools.archives pack data/cifar10 archives [--megabytes 60]  # archives/cifar10-1.zip, cifar10-2.zip
    python -m tools.archives unpack data/cifar10 archives/cifar10-*.zip   # any of them, in any order

Images of the same size are tiled on sheets (lossless WebP), which takes about half the space of single files and
preserves all pixels; other files are stored unchanged. Each archive can be unpacked by itself.
"""

import argparse
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

IMAGES = (".png", ".ppm")
# Maximum number of images in a row of a sheet, and number of rows.
SIDE = 32
INDEX = "sheets.json"


@dataclass(frozen=True)
class Entry:
    """A file of an archive: a sheet with the images ``paths``, in rows, or the file ``name`` itself."""

    name: str
    content: bytes
    paths: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Approximate upper bound of its size in an archive."""
        return len(self.content) + sum(len(path) + 8 for path in self.paths) + 2 * len(self.name) + 256


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("folder", type=Path)
    packing.add_argument("out", type=Path)
    packing.add_argument("--megabytes", type=float, default=60, help="maximum size of an archive")
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("folder", type=Path)
    unpacking.add_argument("archives", type=Path, nargs="+")
    return parser.parse_args()


def pack(folder: Path, out: Path, most_bytes: float) -> list[Path]:
    """Write the files of ``folder`` into archives of at most ``most_bytes``, unless a single sheet needs more."""
    out.mkdir(parents=True, exist_ok=True)
    archives = []
    for number, entries in enumerate(volumes(entries_of(folder), most_bytes), start=1):
        archives.append(out / f"{folder.name}-{number}.zip")
        with zipfile.ZipFile(archives[-1], "w") as archive:
            for entry in entries:
                archive.writestr(entry.name, entry.content)
            archive.writestr(INDEX, json.dumps({entry.name: entry.paths for entry in entries if entry.paths}))
    return archives


def unpack(folder: Path, archives: Sequence[Path]) -> int:
    """Write the files of ``archives`` below ``folder``, and return their number."""
    count = 0
    for archive in map(zipfile.ZipFile, archives):
        with archive:
            sheets = json.loads(archive.read(INDEX))
            for name in set(archive.namelist()) - sheets.keys() - {INDEX}:
                place(folder, name).write_bytes(archive.read(name))
                count += 1
            for name, paths in sheets.items():
                for path, image in zip(paths, images_of(archive.read(name), len(paths)), strict=True):
                    Image.fromarray(image).save(place(folder, path))
                    count += 1
    return count


def volumes(entries: Iterable[Entry], most_bytes: float) -> Iterator[list[Entry]]:
    """The ``entries`` in order, in lists that fit into ``most_bytes``."""
    held: list[Entry] = []
    for entry in entries:
        if held and sum(other.size_bytes for other in [*held, entry]) > most_bytes:
            yield held
            held = []
        held.append(entry)
    if held:
        yield held


def entries_of(folder: Path) -> Iterator[Entry]:
    """The files of ``folder``, images on sheets."""
    by_size: dict[tuple[int, int], list[str]] = defaultdict(list)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        if file.suffix in IMAGES:
            with Image.open(file) as image:
                by_size[image.size].append(name)
        else:
            yield Entry(name, file.read_bytes())
    for (width, height), names in by_size.items():
        for start in range(0, len(names), SIDE**2):
            paths = tuple(names[start : start + SIDE**2])
            yield Entry(f"sheets/{width}x{height}-{start}.webp", sheet_of([folder / path for path in paths]), paths)


def sheet_of(files: Sequence[Path]) -> bytes:
    """Images of one size, row by row on one sheet that is as wide as needed."""
    images = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
    count, height, width, _ = images.shape
    columns = -(-count // SIDE)
    sheet = np.zeros((SIDE * columns, height, width, 3), np.uint8)
    sheet[:count] = images
    sheet = sheet.reshape(SIDE, columns, height, width, 3).swapaxes(1, 2).reshape(SIDE * height, columns * width, 3)
    written = io.BytesIO()
    Image.fromarray(sheet).save(written, "webp", lossless=True, quality=100)
    return written.getvalue()


def images_of(content: bytes, count: int) -> NDArray[np.uint8]:
    """The first ``count`` images of a sheet, (count, height, width, 3); their size follows from that of the sheet."""
    sheet = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    columns = -(-count // SIDE)
    height, width = sheet.shape[0] // SIDE, sheet.shape[1] // columns
    images = sheet.reshape(SIDE, height, columns, width, 3).swapaxes(1, 2).reshape(-1, height, width, 3)
    return images[:count]


def place(folder: Path, name: str) -> Path:
    """The path of the file ``name`` in ``folder``; creates its parent folder.

    Raises:
        ValueError: the path is outside of ``folder``.
    """
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name} is outside of {folder}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main() -> None:
    """Pack or unpack, and print the result."""
    args = arguments()
    if args.command == "pack":
        for archive in pack(args.folder, args.out, 1e6 * args.megabytes):
            print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")
    else:
        print(f"{unpack(args.folder, args.archives)} files in {args.folder}")


if __name__ == "__main__":
    main()
