"""A first look at networks that are right about every image, and at what can be wrong with their input."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from catro_deploy.assessment import suspicions
from catro_deploy.data import Dataset, MemorySplit
from catro_deploy.errors import DataError
from catro_deploy.report.images import accuracy_words
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import DataSettings, Settings
from catro_deploy.stages.first_look import first_look
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import prune
from tests.notes import Notes
from tests.stages.colours import CLASSES, ColourNet, dataset


class PixelNet(nn.Module):
    """Counts bright pixels: an image of class k has 16 * (k + 1) of them at 8x8, and a quarter of that at 4x4."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 1, 1)
        self.fc = nn.Linear(1, classes)
        with torch.no_grad():
            self.conv.weight.fill_(1 / 3)
            self.conv.bias.zero_()
            # For a count n, the logit c * n - c * c / 2 is the largest one if c is nearest to n.
            counts = torch.tensor([16.0, 32.0, 48.0])
            self.fc.weight.copy_(counts[:, None])
            self.fc.bias.copy_(-(counts**2) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.conv(x)).sum((2, 3)))


def reordered(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Red, green and blue images, with green labelled 0, blue 1 and red 2."""
    known = dataset(settings, size, channels)
    split = MemorySplit(known.train.images(range(30)), (known.train.labels + 2) % 3)
    return Dataset("reordered", CLASSES, {}, split, split, split)


def unlabelled(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    known = dataset(settings, size, channels)
    split = MemorySplit(known.train.images(range(30)), np.full(30, -1))
    return Dataset("unlabelled", CLASSES, {}, split, split, split)


def bgr(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """Red and dark images, stored as BGR."""
    labels = np.repeat(np.arange(2), 20)
    pixels = dataset(settings, size, channels).train.images(np.zeros(40, np.int64))
    pixels[labels == 1] = 30
    split = MemorySplit(pixels.flip(1), labels)
    return Dataset("bgr", ("red", "dark"), {}, split, split, split)


class RedOrDark(ColourNet):
    """Predicts 0 if red is bright: half its normalised mean is 0.2 in red images and -0.8 in dark ones."""

    def __init__(self, classes: int) -> None:
        super().__init__(3)
        self.fc = nn.Linear(3, classes)
        with torch.no_grad():
            self.fc.weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
            self.fc.bias.copy_(torch.tensor([0.0, -0.3]))


@pytest.fixture
def look(tmp_path):
    """Take a first look at ``network`` on images of a factory, by default of colours; return it and the notes."""

    def at(network, data="dataset", stated=None, model=None, **sections):
        content = {"state_dict": network.state_dict()} | ({} if stated is None else {"val_acc": stated})
        content |= sections.pop("content_too", {})
        torch.save(content, tmp_path / "model.pth")
        names = {"dataset": "tests.stages.colours:dataset"}
        name = model or f"{type(network).__module__}:{type(network).__name__}"
        settings = Settings.model_validate(
            {
                "model": {"name": name, "checkpoint": tmp_path / "model.pth"} | sections.pop("model_too", {}),
                "data": {"name": names.get(data, f"{__name__}:{data}"), "size": 8} | sections.pop("data_too", {}),
                "prune": {"compute": "cpu"} | sections.pop("prune_too", {}),
                "finetune": sections.pop("finetune_too", {}),
            }
        )
        progress = Notes()
        return first_look(open_original(settings), settings, progress), progress.lines

    return at


def test_a_network_that_is_right_is_not_suspected(look):
    found, notes = look(ColourNet(3), stated=1.0)
    assert (found.images, found.accuracy, found.stated, found.warnings, found.invalid) == (30, 1.0, 1.0, (), "")
    assert notes == ["images 8x8", f"original: {accuracy_words(found)}"]


def test_other_weights_in_the_checkpoint_are_named(look, tmp_path):
    found, notes = look(ColourNet(3), content_too={"state_dict_ema": ColourNet(3).state_dict()})
    file = tmp_path / "model.pth"
    assert found.warnings == (
        f'{file} also holds weights of this network in ["state_dict_ema"]; those in ["state_dict"] are used. To use '
        f'others, save them alone: torch.save(torch.load("{file}", "cpu")["state_dict_ema"], "weights.pth")',
    )
    assert notes[-1] == f"WARNING: {found.warnings[0]}"


def test_a_guess_is_reported_with_its_causes_in_order(look):
    blind = ColourNet(3)
    torch.nn.init.zeros_(blind.fc.weight)
    found, notes = look(blind)
    assert found.accuracy == pytest.approx(1 / 3)
    (warning,) = found.warnings
    assert "no better than guessing" in warning
    assert found.invalid == "the original is no better than guessing on validation images"
    causes = ["size ([data], here 8x8)", "mean and std", "RGB or BGR", "order of the classes", "another training"]
    places = [warning.index(cause) for cause in causes]
    assert places == sorted(places)
    assert notes[-1] == f"WARNING: {warning}"


def test_far_below_what_the_checkpoint_states(look):
    half_blind = ColourNet(3)
    torch.nn.init.constant_(half_blind.fc.bias[0], -1000.0)
    found, _ = look(half_blind, stated=99.0)
    assert found.accuracy == pytest.approx(2 / 3)
    assert "far below the 99.00% that its checkpoint states" in found.warnings[0]
    assert look(half_blind)[0].warnings == ()
    assert look(half_blind, stated=0.66)[0].warnings == ()


def test_an_accuracy_stated_for_more_classes_is_shown_as_such(look):
    found, notes = look(ColourNet(3), stated=0.99, prune_too={"classes": ["red", "green"]})
    assert (found.accuracy, found.stated, found.stated_classes, found.warnings) == (1.0, 0.99, 3, ())
    assert notes[-1].endswith("right (its checkpoint states 99.00% for all 3 classes)")


def test_another_order_of_the_classes_is_named(look):
    found, _ = look(ColourNet(3), "reordered")
    assert (found.accuracy, found.invalid) == (0, "the original's outputs probably belong to other classes")
    (warning,) = found.warnings
    # The network's first output stands for red, which the images label as 2, the class named blue.
    assert "red is blue, green is red, blue is green" in warning
    assert "100.00% if its outputs belong to other classes" in warning
    assert warning.endswith('[model] classes = ["blue", "red", ...], or a file of names.')
    mended, _ = look(ColourNet(3), "reordered", model_too={"classes": ["blue", "red", "green"]})
    assert (mended.accuracy, mended.warnings) == (1, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"model_too": {"classes": ["green", "red", "blue"]}},
        {"model_too": {"classes": list(CLASSES)}, "data_too": {"labels": {"red": "green", "green": "red"}}},
    ],
)
def test_where_the_settings_name_the_classes_they_are_to_be_corrected(look, wrong):
    (warning,) = look(ColourNet(3), **wrong)[0].warnings
    assert "order of the classes is probably wrong" in warning
    assert "Correct [model] classes" in warning
    assert "or [data] labels" in warning


def test_the_order_of_channels_that_fits_is_named(look):
    found, _ = look(RedOrDark(2), "bgr")
    assert found.accuracy == 0.5
    assert "With the channels in the order BGR it has 100.00% of 40 of them right." in found.warnings[0]


def test_the_normalisation_that_fits_is_named(look):
    network = ColourNet(3)
    torch.nn.init.constant_(network.fc.bias, 0.0)
    with torch.no_grad():  # blue always wins, unless pixel values are large
        network.fc.bias[2] = 20.0
    right = look(network, model_too={"mean": [0, 0, 0], "std": [1 / 255] * 3})[0]
    assert (right.accuracy, right.warnings) == (1.0, ())
    wrong = look(network)[0]
    assert "With mean = [0, 0, 0] and std = [0.003922, 0.003922, 0.003922] it has 100.00% of 30" in wrong.warnings[0]


@pytest.fixture
def counted(tmp_path):
    """A folder with 12 images of each class of PixelNet in each split."""
    for dark, split in enumerate(("train", "test", "val")):  # no file of a split is the same as one of another
        for label, name in enumerate(("few", "many", "most")):
            folder = tmp_path / "files" / split / name
            folder.mkdir(parents=True)
            pixels = np.full((64, 3), dark, np.uint8)
            pixels[: 16 * (label + 1)] = 255
            for number in range(12):
                Image.fromarray(pixels.reshape(8, 8, 3)).save(folder / f"{number}.png")
    return tmp_path / "files"


def test_the_size_that_fits_is_named(look, counted):
    files = {"name": "imagefolder", "root": counted}
    plain = {"mean": [0, 0, 0], "std": [1, 1, 1]}
    found, notes = look(PixelNet(3), data_too=files, model_too=plain)
    assert (notes[0], found.accuracy, found.warnings) == ("images 8x8", 1.0, ())
    found, notes = look(PixelNet(3), data_too=files | {"size": 4}, model_too=plain)
    assert notes[0] == "images 8x8 -> 4x4 (shrunk)"
    assert "With [data] size = 8 it has 100.00% of 36 of them right." in found.warnings[0]
    assert "Images are resized: 8x8 -> 4x4 (shrunk)" in found.warnings[1]


@pytest.mark.parametrize(
    ("split", "settings", "found"),
    [
        ("test", {}, True),
        ("test", {"prune_too": {"classes": ["few", "many"]}}, False),
        ("train", {}, True),
        ("train", {"finetune_too": {"epochs": 0}}, False),
        ("train", {"data_too": {"skip_corrupt": True}}, False),
    ],
)
def test_a_corrupt_file_that_the_run_will_need_is_found_at_once(look, counted, split, settings, found):
    broken = counted / split / "most" / "3.png"
    broken.write_bytes(broken.read_bytes()[:50])
    data = {"name": "imagefolder", "root": counted} | settings.pop("data_too", {})
    expected = pytest.raises(DataError, match=rf"{split}/most/3\.png cannot be read") if found else nullcontext()
    with expected:
        look(PixelNet(3), data_too=data, model_too={"mean": [0, 0, 0], "std": [1, 1, 1]}, **settings)


def test_without_labels_how_sure_it_is_and_of_what_is_shown(look):
    sure = ColourNet(3)
    with torch.no_grad():
        sure.fc.weight.mul_(20)
    found, notes = look(sure, "unlabelled")
    assert (found.images, found.accuracy, found.warnings) == (30, None, ())
    assert found.most_frequent == pytest.approx(1 / 3)
    assert found.confidence > 0.9
    assert "30 validation images without labels; mean confidence" in notes[-1]


def test_without_labels_a_network_that_is_sure_of_nothing_is_suspected(look):
    blind = ColourNet(3)
    torch.nn.init.zeros_(blind.fc.weight)
    found, notes = look(blind, "unlabelled")
    assert found.confidence == pytest.approx(1 / 3)
    assert found.invalid == "the original has almost no confidence in its predictions"
    (warning,) = found.warnings
    assert "mean confidence is 33.33%, and guessing among 3 classes gives 33.33%" in warning
    causes = ["size ([data], here 8x8)", "mean and std", "RGB or BGR", "order of the classes", "another training"]
    places = [warning.index(cause) for cause in causes]
    assert places == sorted(places)
    assert notes[-1] == f"WARNING: {warning}"


def test_without_labels_one_prediction_to_nearly_all_is_suspected(look):
    stuck = ColourNet(3)
    torch.nn.init.constant_(stuck.fc.bias[1], 100.0)
    found, _ = look(stuck, "unlabelled")
    assert found.most_frequent == 1
    assert "gives 100.00% of 30 validation images the same class, green. Unless" in found.warnings[0]


def test_only_some_of_many_images_are_shown(look, monkeypatch):
    monkeypatch.setattr(suspicions, "MOST_IMAGES", 6)
    found, _ = look(ColourNet(3))
    assert (found.images, found.accuracy) == (6, 1.0)


def test_the_plan_keeps_it_and_the_look_comes_first(tmp_path):
    torch.save({"state_dict": ColourNet(3).state_dict(), "acc": 100}, tmp_path / "model.pth")
    settings = Settings.model_validate(
        {
            "model": {"name": "tests.stages.colours:ColourNet", "checkpoint": tmp_path / "model.pth"},
            "data": {"name": "tests.stages.colours:dataset", "size": 8},
            "prune": {"budget": "100%flops", "d_min": 1, "compute": "cpu"},
        }
    )
    run, progress = RunFolder(tmp_path / "run"), Notes()
    prune(settings, run, progress)
    look = load_plan(run).first_look
    assert (look.accuracy, look.stated) == (1.0, 1.0)
    assert progress.lines[:2] == ["images 8x8", "original: " + accuracy_words(look)]
