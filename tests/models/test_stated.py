import pytest
import torch
from safetensors.torch import save_file

from catro_deploy.models.checkpoint import RECORD_KEY
from catro_deploy.models.stated import stated_accuracy
from catro_deploy.records.files import record_text
from tests.report.made import make_trained

WEIGHTS = {"weight": torch.zeros(2)}


@pytest.mark.parametrize(
    ("stated", "share"),
    [
        ({"val_acc": 0.97}, 0.97),
        ({"best_acc1": torch.tensor(97.0)}, 0.97),
        ({"Accuracy": 1}, 1.0),
        ({"train_acc": 0.99, "val_acc": 0.9}, 0.9),  # the more honest of the two
        ({"epoch": 90}, None),
        ({"acc": "high"}, None),
        ({"acc": float("nan")}, None),
        ({"acc": [0.1, 0.9]}, None),
        ({"acc": True}, None),
        ({"acc": 0.0, "top1": 250}, None),
    ],
)
def test_of_torch_files(tmp_path, stated, share):
    torch.save({"state_dict": WEIGHTS, **stated}, tmp_path / "model.pth")
    assert stated_accuracy(tmp_path / "model.pth") == share


def test_of_weights_alone(tmp_path):
    torch.save(WEIGHTS, tmp_path / "model.pth")
    assert stated_accuracy(tmp_path / "model.pth") is None


@pytest.mark.parametrize(
    ("metadata", "share"),
    [
        ({RECORD_KEY: record_text(make_trained(validation_accuracy=0.93))}, 0.93),
        ({"accuracy": "93"}, 0.93),
        ({}, None),
    ],
)
def test_of_safetensors(tmp_path, metadata, share):
    save_file(WEIGHTS, tmp_path / "model.safetensors", metadata)
    assert stated_accuracy(tmp_path / "model.safetensors") == share
