import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from catro_deploy.data.loader import (
    WantedClasses,
    class_samples,
    image_batches,
    image_samples,
    open_loader,
    without_labels,
)
from catro_deploy.errors import DataError

SHAPE = (1, 1, 1)


def numbered(labels, size=4):
    """Batches of images that contain their own index."""
    images = torch.arange(len(labels)).float().view(-1, *SHAPE)
    return list(zip(images.split(size), torch.tensor(labels).split(size), strict=True))


def numbers(images):
    return images.flatten().int().tolist()


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    wanted=st.sets(st.integers(0, 4), min_size=2),
    size=st.integers(1, 7),
)
def test_the_wanted_images_come_once_in_order_under_their_new_labels(labels, wanted, size):
    indices = tuple(sorted(wanted))
    batches = list(WantedClasses(5, indices).batches(numbered(labels, size), SHAPE))
    found = [pair for images, new in batches for pair in zip(numbers(images), new.tolist(), strict=True)]
    assert found == [(place, indices.index(label)) for place, label in enumerate(labels) if label in wanted]
    assert all(len(new) for _, new in batches)


@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    size=st.integers(1, 7),
    per_class=st.integers(2, 9),
    at_once=st.integers(1, 9),
)
def test_samples_are_the_first_of_each_class(labels, size, per_class, at_once):
    expected = {label: [n for n, one in enumerate(labels) if one == label][:per_class] for label in (1, 3)}
    wanted = WantedClasses(4, (1, 3))
    given = numbered(labels, size)
    if min(map(len, expected.values())) < 2:
        with pytest.raises(DataError, match=r"\b[01]\b.*\bclass [bd]\b"):
            class_samples(given, wanted, ("b", "d"), SHAPE, per_class, at_once)
        return
    samples = class_samples(given, wanted, ("b", "d"), SHAPE, per_class, at_once)
    assert [label for _, label in samples] == sorted(label for _, label in samples)
    assert all(1 <= len(images) <= at_once for images, _ in samples)
    for new, old in enumerate((1, 3)):
        assert [n for images, label in samples if label == new for n in numbers(images)] == expected[old]


def test_the_loader_is_read_no_further_than_needed():
    read = []

    def batches():
        for number, batch in enumerate(numbered([0, 1] * 20)):
            read.append(number)
            yield batch

    class_samples(batches(), WantedClasses(2, (0, 1)), ("a", "b"), SHAPE, 3, 8)
    assert read == [0, 1]


def test_the_class_that_is_missing_is_named():
    with pytest.raises(DataError, match=r"\b1\b.*\bzebra\b") as caught:
        class_samples(numbered([0, 0, 1]), WantedClasses(2, (0, 1)), ("ape", "zebra"), SHAPE, 8, 8)
    assert "classes" in caught.value.hint


def test_a_torch_loader_fits():
    dataset = TensorDataset(torch.arange(6).double().view(-1, *SHAPE), torch.tensor([0, 1, 0, 1, 0, 1]).int())
    ((images, labels),) = WantedClasses(2, (0, 1)).batches(DataLoader(dataset, batch_size=6), SHAPE)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert labels.tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"image": torch.zeros(2, *SHAPE)}, "a dict, not a pair of tensors"),
        (torch.zeros(2, *SHAPE), "a Tensor, not a pair of tensors"),
        ((torch.zeros(2, *SHAPE),), "a tuple of 1, not a pair"),
        ((torch.zeros(2, *SHAPE), [0, 1]), "a tuple of 2, not a pair of tensors"),
        ((torch.zeros(2, *SHAPE, dtype=torch.uint8), torch.zeros(2).long()), "torch.uint8 (2, 1, 1, 1)"),
        ((torch.zeros(2, 4), torch.zeros(2).long()), "torch.float32 (2, 4)"),
        ((torch.zeros(2, *SHAPE), torch.zeros(2)), "labels of a batch are torch.float32 (2,)"),
        ((torch.zeros(2, *SHAPE), torch.zeros(2, 5).long()), "torch.int64 (2, 5) for 2 images"),
        ((torch.zeros(2, *SHAPE), torch.tensor([0, 3])), "labels from 0 to 3; there are 3 classes"),
        ((torch.zeros(2, *SHAPE), torch.tensor([-1, 0])), "labels from -1 to 0"),
        ((torch.zeros(2, 1, 2, 2), torch.tensor([0, 1])), "shape (1, 2, 2) after images of (1, 1, 1)"),
    ],
)
def test_what_is_not_images_with_labels_is_named(batch, said):
    with pytest.raises(DataError) as caught:
        list(WantedClasses(3, (0, 1)).batches([batch], SHAPE))
    assert said in caught.value.problem
    assert caught.value.hint


def test_a_look_at_the_first_batch_loses_nothing():
    given = numbered([0, 1, 0, 1, 1], size=2)
    opened = open_loader(iter(given))
    assert numbers(opened.images) == [0, 1]
    assert [numbers(images) for images, _ in opened.batches] == [[0, 1], [2, 3], [4]]


EMPTY = torch.zeros(0, *SHAPE)


@pytest.mark.parametrize("empty", [EMPTY, (EMPTY,), (EMPTY, torch.zeros(0).long())])
def test_empty_batches_are_skipped(empty):
    given = [empty, *numbered([0, 1, 0], size=2), empty]
    opened = open_loader(given)
    assert (opened.labelled, numbers(opened.images)) == (True, [0, 1])
    assert [numbers(images) for images in image_batches(opened.batches, SHAPE)] == [[0, 1], [2]]
    assert [numbers(images) for images in image_batches(given, SHAPE)] == [[0, 1], [2]]


@pytest.mark.parametrize("batches", [[], [EMPTY], [(EMPTY, torch.zeros(0).long())] * 2])
def test_an_empty_loader_is_refused(batches):
    with pytest.raises(DataError, match="empty"):
        open_loader(batches)


@pytest.mark.parametrize("read", [open_loader, lambda loader: list(image_batches(loader, SHAPE))])
@pytest.mark.parametrize("loader", [5, None])
def test_what_is_no_loader_is_named(read, loader):
    with pytest.raises(DataError, match=f"of type {type(loader).__name__}, which cannot be iterated"):
        read(loader)


@pytest.mark.parametrize("wrap", [lambda images: images, lambda images: [images], lambda images: (images,)])
def test_images_may_come_alone(wrap):
    batches = [wrap(images) for images, _ in numbered([0] * 10)]
    opened = open_loader(batches)
    assert (opened.labelled, numbers(opened.images)) == (False, [0, 1, 2, 3])
    samples = image_samples(opened.batches, SHAPE, 7, 3)
    assert [(numbers(images), label) for images, label in samples] == [([0, 1, 2], 0), ([3, 4, 5], 0), ([6], 0)]
    found = list(without_labels([*batches, wrap(torch.zeros(0, *SHAPE))], SHAPE))
    assert [(numbers(images), labels.tolist()) for images, labels in found] == [
        ([0, 1, 2, 3], [-1] * 4),
        ([4, 5, 6, 7], [-1] * 4),
        ([8, 9], [-1] * 2),
    ]


def test_labels_that_are_not_needed_are_left_out():
    opened = open_loader(numbered([0, 1, 0, 1, 1]))
    assert opened.labelled
    assert [numbers(images) for images in image_batches(opened.batches, SHAPE)] == [[0, 1, 2, 3], [4]]


def test_images_alone_are_checked():
    with pytest.raises(DataError, match=r"\b1\b.*\b2\b"):
        image_samples([torch.zeros(1, *SHAPE)], SHAPE, 8, 4)
    with pytest.raises(DataError, match=r"\(1, 2, 2\).*\(1, 1, 1\)"):
        image_samples([torch.zeros(2, *SHAPE), torch.zeros(2, 1, 2, 2)], SHAPE, 8, 4)
    with pytest.raises(DataError, match=r"torch\.uint8"):
        open_loader([torch.zeros(2, *SHAPE, dtype=torch.uint8)])
