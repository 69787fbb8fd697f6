import re
import shutil

import numpy as np
import pytest
from PIL import Image

from catro_deploy.data import gtsrb, open_dataset
from catro_deploy.errors import DataError
from catro_deploy.settings import DataSettings


def opened(root, **settings):
    return open_dataset(DataSettings(name="gtsrb", root=root, **settings), (32, 32), 3)


def track(path):
    return path.parent.name, path.stem.split("_")[0]


@pytest.fixture
def small_root(tmp_path):
    """GTSRB's layout with two tracks of two frames and one test image per class."""
    base = tmp_path / "gtsrb/GTSRB"
    rows = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    (base / "Final_Test/Images").mkdir(parents=True)
    for label in range(43):
        folder = base / "Training" / f"{label:05d}"
        folder.mkdir(parents=True)
        image = Image.new("RGB", (8, 8), (label, 0, 0))
        for name in ("00000_00000", "00000_00001", "00001_00000", "00001_00001"):
            image.save(folder / f"{name}.ppm")
        image.save(base / f"Final_Test/Images/{label:05d}.ppm")
        rows.append(f"{label:05d}.ppm;8;8;0;0;8;8;{label}")
    (tmp_path / "gtsrb/GT-final_test.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.data
def test_all_of_gtsrb(gtsrb_root):
    dataset = opened(gtsrb_root)
    train, validation, test = dataset.train, dataset.validation, dataset.test
    assert len(train.labels) + len(validation.labels) == 39_209
    assert len(test.labels) == 12_630
    groups = {name: int(np.isin(test.labels, list(dataset.groups[name])).sum()) for name in dataset.groups}
    assert groups == {"speed_limits": 4_260, "direction_signs": 1_770}
    assert not {track(path) for path in train.paths} & {track(path) for path in validation.paths}
    assert set(train.labels) == set(validation.labels) == set(range(43))
    assert len(validation.labels) == pytest.approx(3_921, rel=0.1)
    assert all(int(path.parent.name) == label for path, label in zip(train.paths, train.labels, strict=True))
    indices = np.flatnonzero(test.labels == 14)[:3]
    expected = np.stack([np.asarray(Image.open(test.paths[i])) for i in indices]).transpose(0, 3, 1, 2)
    assert (test.images(indices).numpy() == expected).all()


def test_classes_and_groups():
    assert len(set(gtsrb.CLASSES)) == 43
    assert [gtsrb.CLASSES[i] for i in (0, 1, 8, 14, 17, 33, 40, 42)] == [
        "speed_limit_20",
        "speed_limit_30",
        "speed_limit_120",
        "stop",
        "no_entry",
        "turn_right_ahead",
        "roundabout",
        "end_of_no_passing_for_trucks",
    ]
    assert gtsrb.GROUPS["speed_limits"] == tuple(range(1, 9))
    assert gtsrb.GROUPS["direction_signs"] == tuple(range(33, 41))


def test_tracks_stay_whole_and_labels_come_from_folders(small_root):
    dataset = opened(small_root)
    for split in (dataset.train, dataset.validation):
        assert np.bincount(split.labels).tolist() == [2] * 43
        assert split.images(range(86))[:, 0, 0, 0].tolist() == split.labels.tolist()
    assert not {track(path) for path in dataset.train.paths} & {track(path) for path in dataset.validation.paths}


def test_the_seed_chooses_the_tracks(small_root):
    held = [opened(small_root, seed=seed).validation.paths for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]


BREAKS = {
    "nothing": (lambda root: shutil.rmtree(root / "gtsrb"), "not in"),
    "no test images": (lambda root: shutil.rmtree(root / "gtsrb/GTSRB/Final_Test"), "not in"),
    "no csv": (lambda root: (root / "gtsrb/GT-final_test.csv").unlink(), r"No such file.*GT-final_test\.csv"),
    "other csv": (
        lambda root: (root / "gtsrb/GT-final_test.csv").write_text("a;b\n1;2\n"),
        r"GT-final_test\.csv.*'Filename'",
    ),
    "empty csv": (
        lambda root: (root / "gtsrb/GT-final_test.csv").write_text(""),
        "expected images",
    ),
    "strange class": (
        lambda root: (root / "gtsrb/GTSRB/Training/00042").rename(root / "gtsrb/GTSRB/Training/extra"),
        "expected images",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_missing_is_reported_with_the_layout(small_root, name):
    spoil, problem = BREAKS[name]
    spoil(small_root)
    with pytest.raises(DataError) as caught:
        opened(small_root)
    assert re.search(problem, caught.value.problem)
    assert f"{small_root}/gtsrb/GTSRB/Training/00000/*.ppm" in caught.value.hint
    assert "--download" in caught.value.hint


def test_a_missing_class_does_not_shift_the_labels(small_root):
    shutil.rmtree(small_root / "gtsrb/GTSRB/Training/00014")
    with pytest.raises(DataError, match=r"\bstop\b"):
        opened(small_root)


def test_a_truncated_image_is_named(small_root):
    path = small_root / "gtsrb/GTSRB/Final_Test/Images/00003.ppm"
    path.write_bytes(path.read_bytes()[:100])
    test = opened(small_root).test
    assert test.images([2]).shape == (1, 3, 32, 32)
    with pytest.raises(DataError, match=r"Final_Test/Images/00003\.ppm"):
        test.images([2, 3])
