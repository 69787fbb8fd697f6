"""Reading photographs for training compared with a plain torchvision DataLoader, and start-up on a large file tree.

    python -m benchmarks.training.loading --photographs FOLDER [--images 512] [--rounds 5] [--files 200000]

Both apply random crops to 224x224, random flips and normalisation; ``augment = "photos"`` also varies colours, and so
does a second plain loader, with ColorJitter. Files are mosaics of the photographs below FOLDER, saved as JPEG in the
sizes of a small image, of most ImageNet images, and of a camera image. All are in the system's cache, and nothing
trains meanwhile. The loaders alternate; ratios are medians over the rounds. For start-up, fresh processes open a tree
of --files files until the first batch is available, the first time without and the second time with a stored listing.
Prints tables; writes benchmarks/results/loading.json.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchmarks.common import environment, in_fresh_process, peak_memory_bytes, table, write_result
from catro_deploy.data import open_dataset
from catro_deploy.memory import reused_pages
from catro_deploy.settings import DataSettings, FinetuneSettings
from catro_deploy.training.batches import SplitBatches
from catro_deploy.training.compute import choose_hardware

SIDE, BATCH = 224, 64
SIZES = ((224, 224), (500, 375), (1600, 1200))
WORKERS = (1, 2)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OURS, PLAIN, JITTERED = "photos", "plain", "plain, ColorJitter"
CLASSES_OF_TREE = 200
# The stored listing of a folder that was modified just before is not trusted.
PAUSE_S = 3


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=Path, help="a folder with JPEGs below it")
    parser.add_argument("--images", type=int, default=512, help="images in each pass")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=200_000, help="files of the tree")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_photographs(photographs: Path, folder: Path, size: tuple[int, int], count: int) -> None:
    """Write ``count`` JPEGs of ``size`` (width, height) to train on, each made of four photographs or one."""
    sources = sorted(path for path in photographs.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    rng = np.random.default_rng(0)
    for number in range(count + 2):
        tiles = 1 if max(size) <= SIDE else 2
        mosaic = Image.new("RGB", size)
        for place in range(tiles**2):
            with Image.open(sources[int(rng.integers(len(sources)))]) as one:
                tile = one.convert("RGB").resize((size[0] // tiles, size[1] // tiles), Image.Resampling.BICUBIC)
            mosaic.paste(tile, (place % tiles * tile.width, place // tiles * tile.height))
        split = "train" if number < count else "test"
        path = folder / split / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        mosaic.save(path, quality=90)


def plain_loader(folder: Path, workers: int, jitter: bool) -> Iterable[Any]:
    """A loader as in torchvision's training reference."""
    colours = [v2.ColorJitter(brightness=0.2, contrast=0.4, saturation=0.4)] if jitter else []
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(SIDE),
            v2.RandomHorizontalFlip(),
            *colours,
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    images = ImageFolder(str(folder / "train"), transform)
    return DataLoader(images, BATCH, shuffle=True, drop_last=True, num_workers=workers)


def batches_of(folder: Path, workers: int | None) -> SplitBatches:
    """The batches of a training with ``augment = "photos"``."""
    settings = DataSettings(name="imagefolder", root=folder, validation=0.01, workers=workers)
    options = FinetuneSettings(augment="photos", batch_size=BATCH, compute="cpu")
    train = open_dataset(settings, (SIDE, SIDE), 3).train
    return SplitBatches(train, options, MEAN, STD, choose_hardware(nn.Flatten(), "cpu", amp=False))


def images_per_second(epoch: Callable[[], Iterable[Any]]) -> float:
    """Images per second of one pass over all batches."""
    with reused_pages():  # as in a training
        began, count = time.perf_counter(), 0
        for images, _ in epoch():
            count += len(images)
        return count / (time.perf_counter() - began)


def rates(photographs: Path, images: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of images per second, by size of the files and number of workers."""
    rows = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make_photographs(photographs, folder, size, images)
            for workers in WORKERS:
                own, plain = batches_of(folder, workers), plain_loader(folder, workers, False)
                jittered = plain_loader(folder, workers, True)
                ways: dict[str, Callable[[], Iterable[Any]]] = {
                    OURS: lambda own=own: own.epoch(1),  # type: ignore[misc]
                    PLAIN: lambda plain=plain: plain,  # type: ignore[misc]
                    JITTERED: lambda jittered=jittered: jittered,  # type: ignore[misc]
                }
                images_per_second(ways[OURS])  # warms up
                turns = [{way: images_per_second(epoch) for way, epoch in ways.items()} for _ in range(rounds)]
                rows.append({"files": list(size), "workers": workers, "rounds": turns})
                print(f"{size[0]}x{size[1]}, {workers} workers: done", flush=True)
    return rows


def make_tree(photographs: Path, folder: Path, files: int) -> None:
    """Class folders with hard links to a few photographs: names and inodes count here, not pixels."""
    make_photographs(photographs, folder / "sources", (SIDE, SIDE), CLASSES_OF_TREE)
    sources = sorted((folder / "sources" / "train").rglob("*.jpg"))
    for number, source in enumerate(sources):
        for split, count in (("train", files // CLASSES_OF_TREE), ("test", 2)):
            place = folder / "tree" / split / f"class_{number:03d}"
            place.mkdir(parents=True)
            for link in range(count):
                os.link(source, place / f"photograph_{link:06d}.jpg")


def start(root: Path) -> dict[str, float]:
    """Seconds until the listing and the first batch of ``root`` are available, and the memory used by this process."""
    import torchvision  # noqa: F401 - its import takes seconds that must not count

    before, began = peak_memory_bytes(), time.perf_counter()
    batches = batches_of(root, None)
    opened = time.perf_counter()
    images, _ = next(iter(batches.epoch(1)))
    return {
        "open_s": opened - began,
        "first_batch_s": time.perf_counter() - began,
        "memory_bytes": peak_memory_bytes() - before,
        "batch_bytes": images.nbytes,
    }


def starts(photographs: Path, files: int) -> list[dict[str, float]]:
    """The first and the second start-up on a new tree."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CATRO_CACHE"] = str(Path(folder, "cache"))
        make_tree(photographs, Path(folder), files)
        time.sleep(PAUSE_S)
        root = str(Path(folder, "tree"))
        return [in_fresh_process(__spec__.name, "--start", root) for _ in range(2)]


def ratio(row: dict[str, Any], way: str) -> float:
    """Speedup of ours over ``way``, the median over the rounds."""
    return median(turn[OURS] / turn[way] for turn in row["rounds"])


def main() -> None:
    """Measure, print, write."""
    args = arguments()
    torch.set_num_threads(1)
    if args.start:
        print(json.dumps(start(args.start)))
        return
    rows = rates(args.photographs, args.images, args.rounds)
    begun = starts(args.photographs, args.files)
    heads = [
        "files",
        "workers",
        *(f"{way}, images/s" for way in (OURS, PLAIN, JITTERED)),
        "ratio",
        "ratio, ColorJitter",
    ]
    cells = [
        [
            "x".join(map(str, row["files"])),
            row["workers"],
            *(f"{median(turn[way] for turn in row['rounds']):.0f}" for way in (OURS, PLAIN, JITTERED)),
            f"{ratio(row, PLAIN):.2f}x",
            f"{ratio(row, JITTERED):.2f}x",
        ]
        for row in rows
    ]
    print(table(heads, cells))
    print()
    lines = [
        [name, f"{one['open_s']:.2f}", f"{one['first_batch_s']:.2f}", f"{one['memory_bytes'] / 2**20:.0f}"]
        for name, one in zip(("first", "second"), begun, strict=True)
    ]
    print(table([f"start on {args.files:,} files", "listed, s", "first batch, s", "memory, MiB"], lines))
    write_result(
        "loading.json",
        {"images": args.images, "batch": BATCH, "rows": rows, "files": args.files, "starts": begun,
         "environment": environment()},
    )  # fmt: skip


if __name__ == "__main__":
    main()
