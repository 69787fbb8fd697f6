import numpy as np
import pytest
from PIL import Image

from catro_deploy.data import Subset, open_dataset
from catro_deploy.errors import DataError
from catro_deploy.settings import DataSettings


def fill(folder, images):
    """Write ``images`` grey images, all different."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(images):
        Image.new("L", (8, 8), 10 * i).save(folder / f"{i}.png")


def opened(root, **settings):
    return open_dataset(DataSettings(name="images", root=root, **settings), (8, 8), 3)


def splits(dataset):
    return {name: getattr(dataset, name) for name in ("train", "validation", "test")}


def test_a_share_is_held_out_for_choices_and_one_for_verification(tmp_path):
    fill(tmp_path, 10)
    fill(tmp_path / "monday" / "camera 2", 10)
    (tmp_path / ".thumbnails").mkdir()
    (tmp_path / ".thumbnails" / "0.png").write_text("no image")
    dataset = opened(tmp_path, validation=0.25)
    paths = {name: set(split.paths) for name, split in splits(dataset).items()}
    assert {name: len(found) for name, found in paths.items()} == {"train": 11, "validation": 4, "test": 5}
    assert len(set.union(*paths.values())) == 20
    again, other = opened(tmp_path, validation=0.25), opened(tmp_path, validation=0.25, seed=1)
    assert list(again.test.paths) == list(dataset.test.paths)
    assert set(other.test.paths) != paths["test"]


@pytest.mark.parametrize("held", [("val",), ("test",), ("val", "test")])
def test_folders_for_held_out_images_are_used_whole(tmp_path, held):
    fill(tmp_path / "train", 10)
    for name in held:
        fill(tmp_path / name / "deeper", 3)
    dataset = opened(tmp_path, validation=0.2)
    for name, split in (("val", dataset.validation), ("test", dataset.test)):
        folders = {path.relative_to(tmp_path).parts[0] for path in split.paths}
        assert folders == ({name} if name in held else {"train"})
        assert len(split.paths) == (3 if name in held else 2)


def test_images_held_out_under_another_usual_name_do_not_become_training_images(tmp_path):
    fill(tmp_path / "training", 10)  # any other folder may have any name
    fill(tmp_path / "validation", 4)
    with pytest.raises(DataError, match="folder validation/; its name must be val/"):
        opened(tmp_path)
    (tmp_path / "validation").rename(tmp_path / "val")
    assert len(opened(tmp_path).validation.labels) == 4


def test_no_label_is_known_and_every_choice_of_classes_keeps_all_images(tmp_path):
    fill(tmp_path, 6)
    dataset = opened(tmp_path)
    assert not dataset.labelled
    assert dataset.classes == ()
    assert all((split.labels == -1).all() for split in splits(dataset).values())
    part = Subset(dataset.train, (2, 5))
    assert part.labels.tolist() == [-1] * 4
    np.testing.assert_array_equal(part.images([0, 3]).numpy(), dataset.train.images([0, 3]).numpy())


def test_too_few_images_say_what_each_is_for(tmp_path):
    fill(tmp_path, 3)
    with pytest.raises(DataError, match=r"\b3 images\b") as caught:
        opened(tmp_path)
    assert "at least 2 are needed for pruning and 1 for verification (" in caught.value.problem
    fill(tmp_path / "test", 1)
    assert len(opened(tmp_path).train.paths) == 2
    with pytest.raises(DataError, match=r"no folder.*/gone\b"):
        opened(tmp_path / "gone")


def test_a_file_that_is_no_whole_image_is_named(tmp_path):
    fill(tmp_path, 6)
    (tmp_path / "broken.png").write_bytes((tmp_path / "1.png").read_bytes()[:30])
    (holding,) = [split for split in splits(opened(tmp_path)).values() if tmp_path / "broken.png" in split.paths]
    with pytest.raises(DataError, match=r"broken\.png"):
        holding.images(range(len(holding.labels)))
