import pytest
import torch
from torch import nn

from catro_deploy.errors import CheckpointError
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import RECORD_KEY, save_weights
from catro_deploy.models.classes import checkpoint_classes
from catro_deploy.records.files import record_text
from tests.report.made import make_trained


class TwoHeads(nn.Module):
    """A network whose number of classes is ambiguous: its two layers have the same rows only for two classes."""

    def __init__(self, classes):
        super().__init__()
        self.wide = nn.Linear(4, classes)
        self.head = nn.Linear(classes, classes if classes == 2 else classes + 1)


def test_names_are_those_that_train_recorded(tmp_path):
    record = {RECORD_KEY: record_text(make_trained(classes=("cat", "dog", "owl")))}
    save_weights(build_model("tests.tiny:network", 3), tmp_path / "a.safetensors", record)
    assert checkpoint_classes("tests.tiny:network", tmp_path / "a.safetensors") == ("cat", "dog", "owl")


@pytest.mark.parametrize(
    ("name", "classes"), [("tests.tiny:network", 7), ("cifar_resnet20", 43), ("cifar_resnet20", 2)]
)
def test_without_a_record_logits_are_counted(tmp_path, name, classes):
    torch.save({"state_dict": build_model(name, classes).state_dict()}, tmp_path / "a.pth")
    assert checkpoint_classes(name, tmp_path / "a.pth") == tuple(map(str, range(classes)))


def test_what_cannot_be_counted_asks_for_names(tmp_path):
    save_weights(TwoHeads(5), tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=r"\b5, 6\b[\s\S]*\[model\] classes"):
        checkpoint_classes("tests.models.test_classes:TwoHeads", tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=r"gone\.safetensors"):
        checkpoint_classes("tests.tiny:network", tmp_path / "gone.safetensors")


def test_a_backbone_without_its_last_layer_is_no_network_of_two_classes(tmp_path):
    weights = build_model("cifar_resnet20", 43).state_dict()
    torch.save({key: value for key, value in weights.items() if not key.startswith("fc.")}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match=r"inferred from .*a\.pth: .* \(fc\.weight, fc\.bias\)"):
        checkpoint_classes("cifar_resnet20", tmp_path / "a.pth")
