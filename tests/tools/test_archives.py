"""Archives of small images: they restore the same pixels and never exceed the size limit."""

import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from tools.archives import INDEX, pack, unpack


def make_folder(folder, counts):
    """Write a table and random images; ``counts`` maps width, height and suffix to their number."""
    rng = np.random.default_rng(0)
    for (width, height, suffix), count in counts.items():
        for number in range(count):
            file = folder / f"{width}x{height}" / f"{number}{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file)
    (folder / "classes.csv").write_text("0;stop\n")
    return folder


def contents(folder):
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: np.asarray(Image.open(path)).tolist() if path.suffix != ".csv" else path.read_text()
        for name, path in files.items()
    }


@pytest.mark.parametrize("count", [1, 31, 32, 33, 1024, 1025])
def test_all_comes_back(tmp_path, count):
    folder = make_folder(tmp_path / "data", {(4, 3, ".png"): count, (2, 5, ".ppm"): 7})
    (archive,) = pack(folder, tmp_path / "out", 1e6)
    assert unpack(tmp_path / "again", [archive]) == count + 8
    assert contents(tmp_path / "again") == contents(folder)


def test_archives_stay_below_the_size_and_stand_alone(tmp_path):
    folder = make_folder(tmp_path / "data", {(8, 8, ".ppm"): 4096})
    most_bytes = 450_000  # a sheet of noise takes 1024 * 8 * 8 * 3 = 196,608 bytes
    archives = pack(folder, tmp_path / "out", most_bytes)
    assert len(archives) == 2
    assert all(archive.stat().st_size <= most_bytes for archive in archives)
    counts = [unpack(tmp_path / f"part {archive.stem}", [archive]) for archive in archives]
    assert counts == [2049, 2048]  # the table is in the first archive
    unpack(tmp_path / "again", archives[::-1])
    assert contents(tmp_path / "again") == contents(folder)


def test_nothing_is_written_outside(tmp_path):
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../escaped.txt", "")
        file.writestr(INDEX, json.dumps({}))
    with pytest.raises(ValueError, match=r"\.\./escaped\.txt"):
        unpack(tmp_path / "data", [archive])
    assert not (tmp_path / "escaped.txt").exists()
