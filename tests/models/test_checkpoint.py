"""Loading and saving weights: the supported formats, and the errors for everything else."""

import os

import pytest
import timm
import torch
import torchvision
from torch import nn

from catro_deploy.errors import CheckpointError
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint, networks_in, save_weights, training_record


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


@pytest.fixture
def trained() -> nn.Module:
    torch.manual_seed(7)
    return small()


def under(prefix: str, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in weights.items()}


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(value, other.state_dict()[key]) for key, value in one.state_dict().items())


def test_safetensors_come_back_equal(trained, tmp_path):
    save_weights(trained, tmp_path / "w.safetensors", {"note": "x"})
    model = small()
    load_checkpoint(model, tmp_path / "w.safetensors")
    assert equal(model, trained)


def test_heads_that_only_training_needs_are_left_out(tmp_path):
    path = tmp_path / "googlenet.pth"
    weights = torchvision.models.get_model("googlenet", weights=None, init_weights=False).state_dict()
    assert any(key.startswith("aux1.") for key in weights)
    torch.save(weights, path)
    model = build_model("torchvision:googlenet", 1000)
    load_checkpoint(model, path)
    assert torch.equal(model.fc.weight, weights["fc.weight"])


def test_checkpoints_of_timm(tmp_path):
    path = tmp_path / "timm.safetensors"
    trained = timm.create_model("tinynet_e", num_classes=4)
    save_weights(trained, path)
    model = build_model("timm:tinynet_e", 4)
    load_checkpoint(model, path)
    assert equal(model, trained)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda weights: weights,
        lambda weights: {"state_dict": weights, "epoch": 3},
        lambda weights: {"model": under("module.", weights)},
        lambda weights: weights | {"total_ops": torch.zeros(1), "0.total_params": torch.zeros(1)},  # thop
        lambda weights: under("_orig_mod.", weights),  # torch.compile
        lambda weights: {"state_dict": under("model.", weights) | {"loss.weight": torch.ones(2)}, "epoch": 3},
    ],
)
def test_torch_files_with_wrappers_and_prefixes(trained, tmp_path, wrap):
    torch.save(wrap(trained.state_dict()), tmp_path / "w.pth")
    model = small()
    load_checkpoint(model, tmp_path / "w.pth")
    assert equal(model, trained)


def test_a_moving_average_of_weights(trained, tmp_path):
    torch.save(torch.optim.swa_utils.AveragedModel(trained).state_dict(), tmp_path / "w.pth")
    model = small()
    load_checkpoint(model, tmp_path / "w.pth")
    assert equal(model, trained)


@pytest.mark.parametrize(
    ("wrap", "used", "others"),
    [
        (lambda one, other: {"model": one, "model_ema": under("module.", other)}, '["model"]', ['["model_ema"]']),
        (lambda one, other: {"state_dict": one, "state_dict_ema": other}, '["state_dict"]', ['["state_dict_ema"]']),
        (lambda one, other: {"model": one, "ema": {"module": other, "updates": 3}}, '["model"]', ['["ema"]["module"]']),
        (lambda one, other: {"model": one, "optimizer": {"state": {0: {"step": torch.ones(1)}}}}, '["model"]', []),
        (lambda one, other: one, "", []),
    ],
)
def test_other_weights_in_the_file_are_found_and_not_loaded(trained, tmp_path, wrap, used, others):
    path = tmp_path / "w.pth"
    torch.save(wrap(trained.state_dict(), small().state_dict()), path)
    model = small()
    load_checkpoint(model, path)
    assert equal(model, trained)
    assert networks_in(path, model.state_dict()) == (used, others)


def test_a_moving_average_alone_is_refused_with_code_that_saves_it(trained, tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"ema": trained.state_dict(), "epoch": 3}, path)
    with pytest.raises(
        CheckpointError, match=r"w\.pth holds a dict with the keys 'ema' \(.*\), 'epoch' \(int\)"
    ) as caught:
        load_checkpoint(small(), path)
    assert caught.value.hint == f'Save the weights alone: torch.save(torch.load("{path}", "cpu")["ema"], "weights.pth")'


def test_a_prefix_that_the_model_has_too_is_kept(trained, tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(nn.ModuleDict({"module": trained}), path)
    model = nn.ModuleDict({"module": small()})
    load_checkpoint(model, path)
    assert equal(model, nn.ModuleDict({"module": trained}))


def test_of_two_such_models_none_is_chosen(trained, tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(nn.ModuleDict({"student": trained, "teacher": small()}), path)
    with pytest.raises(CheckpointError, match=r"2 networks .* student\., teacher\."):
        load_checkpoint(small(), path)


def test_a_mismatch_is_listed_without_the_prefix(trained, tmp_path):
    weights = under("module.", trained.state_dict())
    del weights["module.0.bias"]
    torch.save(weights, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"the model:\nmissing: 0\.bias \[4\]\nCheck"):
        load_checkpoint(small(), tmp_path / "w.pth")


def test_every_mismatch_is_listed(trained, tmp_path):
    weights = trained.state_dict()
    del weights["0.bias"]
    weights["3.weight"] = torch.zeros(5, 4)
    weights["extra"] = torch.zeros(2)
    torch.save(weights, tmp_path / "w.pth")
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(small(), tmp_path / "w.pth")
    text = str(caught.value)
    assert "missing: 0.bias [4]" in text
    assert "different shape: 3.weight is [5, 4] in the file, [2, 4] in the model" in text
    assert "not in the model: extra [2]" in text


def test_weights_that_are_not_numbers(trained, tmp_path):
    trained[0].weight.data[0] = float("nan")
    save_weights(trained, tmp_path / "w.safetensors")
    with pytest.raises(CheckpointError, match=r"NaN[\s\S]*\b0\.weight\b"):
        load_checkpoint(small(), tmp_path / "w.safetensors")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_half_a_file(trained, tmp_path, name, share):
    path = tmp_path / name
    save_weights(trained, path) if name.endswith("safetensors") else torch.save(trained.state_dict(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=str(path)):
        load_checkpoint(small(), path)


def test_a_pickled_module_is_refused_and_its_code_does_not_run(tmp_path):
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    torch.save({"state_dict": Evil()}, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"state_dict\(\)"):
        load_checkpoint(small(), tmp_path / "w.pth")
    assert not marker.exists()


def test_no_such_file(tmp_path):
    with pytest.raises(CheckpointError, match="catro-deploy train"):
        load_checkpoint(small(), tmp_path / "none.pth")


def test_a_file_without_tensors(tmp_path):
    torch.save([1, 2], tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"\blist\b"):
        load_checkpoint(small(), tmp_path / "w.pth")


def test_flipped_bits_of_a_torch_file_are_found(trained, tmp_path):
    path = tmp_path / "w.pth"
    torch.save(trained.state_dict(), path)
    content = bytearray(path.read_bytes())
    place = content.find(trained[0].weight.detach().numpy().tobytes())
    assert place > 0
    content[place + 3] ^= 0b1100000  # the exponent of a weight
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"w\.pth.* checksum"):
        load_checkpoint(small(), path)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, about sparse and quantised tensors
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda weight: weight.to(torch.complex64), "complex"),
        (lambda weight: weight.to_sparse(), "sparse"),
        (lambda weight: torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8), "quantised"),
        (lambda weight: weight.to("meta"), "meta"),
    ],
)
def test_tensors_that_are_no_weights_are_refused(trained, tmp_path, change, kind):
    weights = trained.state_dict()
    weights["3.weight"] = change(weights["3.weight"])
    torch.save(weights, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=rf"\b{kind}\b.*\b3\.weight\b"):
        load_checkpoint(small(), tmp_path / "w.pth")


def test_numbers_for_names_are_refused(tmp_path):
    torch.save({0: torch.ones(2)}, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"\bdict\b"):
        load_checkpoint(small(), tmp_path / "w.pth")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["pipe.pth", "pipe.safetensors"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(small(), tmp_path / name)
    assert training_record(tmp_path / name) is None
