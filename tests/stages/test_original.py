"""The classes of the images are those that the checkpoint was trained on, in the same order."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from catro_deploy.errors import CatroError, DataError, ModelError
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import RECORD_KEY, save_weights
from catro_deploy.records.files import record_text
from catro_deploy.settings import load_settings
from catro_deploy.stages.original import open_original
from tests.report.made import make_trained
from tests.tiny import CLASSES, TinyNet

MODEL = "tests.tiny:network"
FIRST, SECOND, *OTHERS = CLASSES


@pytest.fixture
def open_recorded(tiny):
    """Open the network of a checkpoint whose training recorded these classes."""

    def open_it(*classes):
        record = record_text(make_trained(classes=classes))
        save_weights(build_model(MODEL, len(classes)), Path("recorded.safetensors"), {RECORD_KEY: record})
        return open_original(load_settings(Path("catro.toml"), {"model": {"checkpoint": "recorded.safetensors"}}))

    return open_it


def test_the_recorded_classes_in_their_order_are_accepted(open_recorded):
    assert open_recorded(*CLASSES).classes == tuple(CLASSES)


def test_renamed_classes_are_accepted(open_recorded):
    assert open_recorded("renamed", SECOND, *OTHERS).classes == tuple(CLASSES)


def test_a_class_with_another_index_is_refused(open_recorded):
    """A folder was renamed, so that the folders are in another order than the logits."""
    with pytest.raises(DataError, match=f"'{FIRST}' is class 1 of .*, but class 0 of") as caught:
        open_recorded("a name before", FIRST, *OTHERS)
    assert f'[model] classes = ["a name before", "{FIRST}"' in caught.value.hint


def test_of_a_missing_class_the_recorded_ones_are_named(open_recorded):
    with pytest.raises(DataError, match=f"{len(CLASSES) + 1} classes") as caught:
        open_recorded(*CLASSES, "one more")
    assert '"one more"]' in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prune": {"ignore": ["con1"]}}, "no module 'con1' to ignore"),
        ({"prune": {"input_size": "17"}}, "input_size = 17 is larger than the images"),
        ({"export": {"top_k": 4}}, "export.top_k = 4, but the network has 3 classes"),
        ({"export": {"top_k": 3}, "prune": {"classes": ["down", "even"]}}, "top_k = 3, but the network has 2 classes"),
    ],
)
def test_what_does_not_suit_the_network_is_reported_when_it_is_opened(tiny, asked, said):
    with pytest.raises(CatroError, match=said):
        open_original(load_settings(Path("catro.toml"), asked))


def test_a_wanted_class_without_test_images_is_refused_before_pruning(tiny):
    """Verification, after pruning and fine-tuning, would refuse it."""
    flags = {"data": {"name": "tests.tiny:one_untested"}}
    with pytest.raises(DataError, match=f"no test image of: {SECOND}"):
        open_original(load_settings(Path("catro.toml"), flags))
    others = load_settings(Path("catro.toml"), flags | {"prune": {"classes": [FIRST, *OTHERS]}})
    assert open_original(others).wanted == (0, 2)


class Projected(TinyNet):
    """Its logits depend on random numbers that are not in the state dict."""

    def __init__(self, classes):
        super().__init__(classes)
        self.register_buffer("gain", torch.rand(12, 1, 1) + 0.5, persistent=False)

    def forward(self, x):
        return super().forward(x * self.gain.mean())


class Unread(Projected):
    """Its logits do not depend on them."""

    def forward(self, x):
        return TinyNet.forward(self, x)


def seeded(classes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Projected(classes)


@pytest.mark.parametrize(
    ("network", "whole", "accepted"),
    [("Projected", False, False), ("Projected", True, True), ("seeded", False, True), ("Unread", False, True)],
)
def test_random_numbers_that_the_checkpoint_lacks_are_refused(tiny, network, whole, accepted):
    model = Projected(len(CLASSES))
    save_weights(model, Path("all.safetensors"))
    save_file(model.state_dict(), "state.safetensors")
    chosen = {"name": f"{__name__}:{network}", "checkpoint": "all.safetensors" if whole else "state.safetensors"}
    settings = load_settings(Path("catro.toml"), {"model": chosen})
    if accepted:
        assert torch.equal(open_original(settings).model.gain, model.gain) is whole
        return
    with pytest.raises(ModelError, match=r"draws random numbers for gain, and state\.safetensors does not have"):
        open_original(settings)
