import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from catro_deploy.errors import CheckpointError, ModelError
from catro_deploy.models.saved import KEY, restore_network_, save_network
from tests.tiny import NanNet, TinyNet

SHAPE = (3, 16, 16)


def test_equal_networks_give_equal_files(tmp_path):
    network = TinyNet(3).eval()
    for name in ("one", "two"):
        save_network(network, SHAPE, tmp_path / f"{name}.safetensors", "hash of the plan")
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()


def test_a_network_in_training_is_saved_as_it_is(tmp_path):
    network = TinyNet(3).double().train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    save_network(network, SHAPE, tmp_path / "w.safetensors")
    assert network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    restore_network_(TinyNet(3).eval(), SHAPE, tmp_path / "w.safetensors")


def test_logits_that_are_not_finite_come_back(tmp_path):
    save_network(NanNet(3), SHAPE, tmp_path / "w.safetensors")
    restore_network_(NanNet(3).eval(), SHAPE, tmp_path / "w.safetensors")


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"logits": "a"}', '{"logits": [[1], [1, 2]]}'])
def test_damaged_metadata_are_named(tmp_path, text):
    file, network = tmp_path / "w.safetensors", TinyNet(3).eval()
    save_network(network, SHAPE, file)
    save_file(load_file(file), file, {KEY: text})
    with pytest.raises(CheckpointError, match=f"{KEY} of .* is damaged"):
        restore_network_(network, SHAPE, file)


def test_another_number_of_logits_is_refused(tmp_path):
    network, file = TinyNet(3).eval(), tmp_path / "w.safetensors"
    save_network(network, SHAPE, file)
    save_file(load_file(file), file, {KEY: json.dumps({"logits": [1.0, 2.0]})})
    with pytest.raises(ModelError, match="TinyNet gives other logits"):
        restore_network_(network, SHAPE, file)
