"""The images of a run, with labels numbered like its network's classes."""

import numpy as np
import pytest
from PIL import Image

from catro_deploy.errors import DataError
from catro_deploy.settings import load_settings
from catro_deploy.stages.images import classes_with_images, open_images_of

NETWORK = ["owl", "cat", "lynx", "dog"]


@pytest.fixture
def photos(tmp_path):
    """Image folders of two classes, numbered differently from the network's."""
    for split in ("train", "val"):
        for number, name in enumerate(("cat", "puppy")):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for image in range(4):
                Image.new("RGB", (8, 8), (number, image, 0)).save(folder / f"{image}.png")
    return tmp_path


def opened(root, *, model=None, **data):
    settings = load_settings(None, {"model": model or {}, "data": {"name": "imagefolder", "root": root, **data}})
    return open_images_of(settings, (8, 8))


def test_folders_are_classes_of_the_network(photos):
    dataset = opened(photos, model={"classes": NETWORK}, labels={"puppy": "dog"}, groups={"pets": ["puppy", "cat"]})
    assert dataset.classes == tuple(NETWORK)
    assert dataset.groups == {"puppy": (3,), "pets": (3, 1)}
    assert classes_with_images(dataset) == (1, 3)
    dogs = np.flatnonzero(dataset.test.labels == 3)
    assert (dataset.test.images(dogs)[:, 0] == 1).all()


def test_without_classes_of_a_network_they_are_the_datas(photos):
    dataset = opened(photos, groups={"pets": ["puppy", "cat"]})
    assert dataset.classes == ("cat", "puppy")
    assert dataset.groups == {"pets": (1, 0)}
    assert classes_with_images(dataset) == (0, 1)


def test_labels_need_classes_to_be_mapped_to(photos):
    with pytest.raises(DataError) as refused:
        opened(photos, labels={"puppy": "dog"})
    assert "[model] classes" in refused.value.hint


def test_images_without_labels_may_be_of_any_class_of_the_network(photos):
    dataset = opened(photos, model={"classes": NETWORK}, name="images", groups={"birds": ["owl"]})
    assert dataset.classes == tuple(NETWORK)
    assert dataset.groups == {"birds": (0,)}
    assert classes_with_images(dataset) == (0, 1, 2, 3)


def test_a_number_names_classes_by_their_index(photos):
    dataset = opened(photos, model={"classes": 12}, labels={"cat": 11, "puppy": "3"})
    assert dataset.classes[11] == "11"
    assert classes_with_images(dataset) == (3, 11)
