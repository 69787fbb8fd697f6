"""The check of the original before pruning, on networks with known outputs."""

import pytest
import torch

import catro_deploy
from catro_deploy.api.first_look import other_inputs
from catro_deploy.assessment import suspicions
from catro_deploy.errors import CatroWarning, DataError
from tests.stages.colours import CLASSES, ColourNet, dataset
from tests.training.conftest import one_thread  # noqa: F401 - these networks are small too

QUICK = {"budget": "100%flops", "d_min": 1, "compute": "cpu", "class_names": CLASSES}


def batches(change=lambda images: images, relabel=lambda labels: labels):
    """Red, green and blue images, normalised as the network expects them, then changed."""
    split = dataset(None, (8, 8), 3).train
    images = (split.images(range(30)) / 255 - 0.5) / 0.25
    return [(change(images), relabel(torch.from_numpy(split.labels)))]


def warned(network, loader, **options):
    """Prune ``network`` and return the plan's first look and the warning."""
    with pytest.warns(CatroWarning) as caught:
        pruned = catro_deploy.prune(network, loader, **QUICK | options)
    assert [warning.filename for warning in caught] == [__file__]
    return pruned.plan.first_look, str(caught[0].message)


@pytest.mark.filterwarnings("error")
def test_a_network_that_is_right_is_not_suspected():
    look = catro_deploy.prune(ColourNet(3), batches(), **QUICK).plan.first_look
    assert (look.images, look.accuracy, look.kind, look.warnings) == (30, 1.0, "images of the loader", ())


def test_a_guess_is_warned_of_with_its_causes_in_order():
    blind = ColourNet(3)
    torch.nn.init.zeros_(blind.fc.weight)
    look, said = warned(blind, batches())
    assert look.accuracy == pytest.approx(1 / 3)
    assert look.warnings == (said,)
    assert "33.33% of 30 images of the loader right, which is no better than guessing" in said
    causes = ["size", "mean and std", "RGB or BGR", "order of the classes", "another training"]
    places = [said.index(cause) for cause in causes]
    assert places == sorted(places)


def test_it_is_judged_on_validation_images_where_there_are_any():
    look, said = warned(ColourNet(3), batches(), validation=batches(relabel=lambda labels: (labels + 2) % 3))
    assert (look.accuracy, look.kind) == (0, "validation images")
    assert "red is blue, green is red, blue is green" in said
    assert "the index of the class among the logits: 0 blue, 1 red" in said


def test_only_the_wanted_classes_count():
    look = catro_deploy.prune(
        ColourNet(3), batches(), validation=batches(), **QUICK, classes=["blue", "red"]
    ).plan.first_look
    assert (look.images, look.accuracy) == (20, 1.0)


def test_pixels_that_were_not_normalised_are_found():
    network = ColourNet(3)
    with torch.no_grad():  # blue always wins unless pixel values are large
        network.fc.bias[2] = 20.0
    _, said = warned(network, batches(lambda images: images * 0.25 + 0.5))
    assert "With mean = [0, 0, 0] and std = [0.003922, 0.003922, 0.003922] it has 100.00% of 30" in said


@pytest.mark.parametrize("alone", [lambda images: images, lambda images: (images,)])
def test_images_alone_show_whether_it_is_sure(alone):
    blind = ColourNet(3)
    torch.nn.init.zeros_(blind.fc.weight)
    look, said = warned(blind, [alone(images) for images, _ in batches()])
    assert look.accuracy is None
    assert "almost no confidence in its predictions for 30 images of the loader" in said


@pytest.mark.parametrize("validation", [None, "the same"])
def test_only_some_of_many_images_are_shown(monkeypatch, validation):
    monkeypatch.setattr(suspicions, "MOST_IMAGES", 6)
    given = None if validation is None else batches()
    look = catro_deploy.prune(ColourNet(3), batches(), validation=given, **QUICK).plan.first_look
    assert (look.images, look.accuracy) == (6, 1.0)


def test_a_validation_loader_of_other_images_is_refused():
    with pytest.raises(DataError, match=r"\(3, 4, 4\).*\(3, 8, 8\)"):
        catro_deploy.prune(ColourNet(3), batches(), validation=batches(lambda images: images[:, :, :4, :4]), **QUICK)


def test_other_inputs_are_made_of_the_same_pixels():
    pixels = torch.rand(2, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    known = {one.words: one.batch(0, 2) for one in other_inputs((pixels - 0.5) / 0.25, (0.5,) * 3, (0.25,) * 3)}
    raw = {one.words: one.batch(0, 2) for one in other_inputs(pixels * 255, (), ())}
    assert known["images of 12x8"].shape == (2, 3, 8, 12)
    assert known["images of 3x2"].shape == (2, 3, 2, 3)
    for made in (known, raw):
        torch.testing.assert_close(made["mean = [0, 0, 0] and std = [1, 1, 1]"], pixels)
    torch.testing.assert_close(known["the channels in the order BGR"], (pixels.flip(1) - 0.5) / 0.25)
    unknown = [one.words for one in other_inputs(pixels - 0.5, (), ())]
    assert unknown == ["images of 12x8", "images of 3x2", "the channels in the order BGR"]
