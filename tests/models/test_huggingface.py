"""Image classifiers of Hugging Face transformers, from folders on disk."""

import copy
import importlib
import json
import os
import shutil
import socket
import sys

import pytest
import torch

from catro_deploy.errors import CheckpointError, ModelError
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint
from catro_deploy.models.huggingface import NO_CNNS, OTHERS, architecture_of, class_names, weights_file
from tests.models.huggingface import SMALL, change_json, save_network, write_json

pytest.importorskip("transformers")


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_logits_are_the_librarys_and_need_no_folder_later(tmp_path, kind):
    theirs = save_network(tmp_path / "net", kind)
    name = f"transformers:{tmp_path / 'net'}"
    ours = build_model(name, 3)
    load_checkpoint(ours, weights_file(tmp_path / "net"))
    images = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        expected = theirs(images).logits
        assert torch.equal(ours(images), expected)
        assert torch.equal(copy.deepcopy(ours)(images), expected)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    shutil.rmtree(tmp_path / "net")
    described = json.loads(json.dumps(architecture_of(ours)))
    again = build_model(name, 3, described)
    again.load_state_dict(ours.state_dict())
    with torch.inference_mode():
        assert torch.equal(again(images), expected)


def test_as_many_logits_as_asked_for(tmp_path):
    save_network(tmp_path)
    assert build_model(f"transformers:{tmp_path}", 7)(torch.zeros(1, 3, 32, 32)).shape == (1, 7)


def test_every_classifier_of_the_library_is_built_or_refused():
    mapping = importlib.import_module("transformers.models.auto.modeling_auto")
    kinds = set(mapping.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)
    assert {*NO_CNNS, *OTHERS, *SMALL} <= kinds
    assert not set(SMALL) & {*NO_CNNS, *OTHERS}


@pytest.mark.parametrize("kind", [*NO_CNNS, *OTHERS, "bert", None])
def test_what_is_no_convolutional_classifier_is_refused_by_name(tmp_path, kind):
    write_json(tmp_path / "config.json", {"model_type": kind})
    with pytest.raises(ModelError) as refused:
        build_model(f"transformers:{tmp_path}", 3)
    assert str(tmp_path) in refused.value.problem
    assert kind is None or kind in refused.value.problem
    assert ("vision transformer" in refused.value.problem) == (kind in NO_CNNS)


def test_no_code_of_the_folder_runs_and_nothing_is_fetched(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    save_network(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    maps = {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Net"}
    change_json(tmp_path / "config.json", auto_map=maps, quantization_config={"quant_method": "bitsandbytes"})
    model = build_model(f"transformers:{tmp_path}", 3)
    assert not (tmp_path / "ran").exists()
    assert architecture_of(model).keys().isdisjoint({"auto_map", "quantization_config"})


def test_half_precision_and_other_outputs_of_a_file_do_not_matter(tmp_path):
    save_network(tmp_path)
    change_json(tmp_path / "config.json", dtype="float16", return_dict=False, output_hidden_states=True)
    model = build_model(f"transformers:{tmp_path}", 3)
    assert model(torch.zeros(1, 3, 32, 32)).dtype == torch.float32


def test_names_of_classes(tmp_path):
    def names(labels):
        write_json(tmp_path / "config.json", {"id2label": labels})
        return class_names(tmp_path)

    assert names({"1": "dog", "0": "cat"}) == ("cat", "dog")
    assert names({"0": "crane", "1": "dog", "2": "crane"}) == ("crane", "dog", "crane (2)")
    assert names({"0": "LABEL_0", "1": "LABEL_1"}) == ()
    assert names(None) == ()
    with pytest.raises(ModelError, match="id2label"):
        names({"0": "cat", "2": "dog"})


@pytest.mark.parametrize("content", [None, "{", "[]", "[" * 100_000])
def test_a_folder_without_a_configuration(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        build_model(f"transformers:{tmp_path}", 3)


@pytest.mark.timeout(30)
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"config\.json cannot be read: .*not a regular file"):
        build_model(f"transformers:{tmp_path}", 3)


def test_a_configuration_that_cannot_be(tmp_path):
    save_network(tmp_path)
    change_json(tmp_path / "config.json", layer_type="none")
    with pytest.raises(ModelError, match=r"\bresnet\b[\s\S]*\blayer_type=none\b"):
        build_model(f"transformers:{tmp_path}", 3)


def test_weights_of_another_network(tmp_path):
    save_network(tmp_path / "net")
    model = build_model(f"transformers:{tmp_path / 'net'}", 4)
    with pytest.raises(CheckpointError, match=r"\bclassifier\.1\.weight\b"):
        load_checkpoint(model, weights_file(tmp_path / "net"))


def test_the_file_of_the_weights(tmp_path):
    assert weights_file(tmp_path).name == "model.safetensors"
    (tmp_path / "pytorch_model.bin").touch()
    assert weights_file(tmp_path).name == "pytorch_model.bin"
    (tmp_path / "model.safetensors").touch()
    assert weights_file(tmp_path).name == "model.safetensors"


def test_the_error_says_how_to_install_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError) as refused:
        build_model(f"transformers:{tmp_path}", 3)
    assert "catro-deploy[transformers]" in refused.value.hint
