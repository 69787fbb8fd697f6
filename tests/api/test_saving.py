import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import catro_deploy
from catro_deploy import PrunedModel
from catro_deploy.errors import CheckpointError, ModelError, RunFolderError, SettingsError, UsageError
from catro_deploy.files import write_text
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.runs.folder import RunFolder
from tests.api.test_prune import QUICK, loader
from tests.api.test_pruned import TRAINING, same
from tests.stages.test_prune import lively
from tests.tiny import TinyNet
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too


@pytest.mark.parametrize(
    "model",
    [
        TinyNet,
        TinyNet(3),
        TinyNet(3).train(),
        TinyNet(3).half(),
        nn.DataParallel(TinyNet(3)),
        lambda classes: torch.compile(TinyNet(classes).double()),
    ],
)
def test_saved_and_loaded_it_is_the_same(pruned, tmp_path, images, model):
    pruned.finetune(loader(), **TRAINING | {"epochs": 1})
    folder = pruned.save(tmp_path / "saved")
    assert {file.suffix for file in folder.iterdir()} == {".json", ".safetensors"}
    network = catro_deploy.load(folder, model=model)
    again = PrunedModel.load(folder, model=model)
    assert not network.training
    assert again.plan == pruned.plan
    with torch.inference_mode():
        assert torch.equal(network(images), pruned.model(images))
        assert torch.equal(again.model(images), pruned.model(images))
        assert torch.equal(again.original(images), pruned.original(images))
    if isinstance(model, TinyNet):
        assert model.conv1.out_channels == 12


def test_with_a_factory_it_is_loaded_without_a_model(tmp_path, images):
    pruned = catro_deploy.prune(lively(), loader(), name="tests.tiny:network", **QUICK)
    network = catro_deploy.load(pruned.save(tmp_path / "saved"))
    with torch.inference_mode():
        assert torch.equal(network(images), pruned.model(images))


def test_without_a_factory_it_says_what_is_missing(pruned, tmp_path):
    folder = pruned.save(tmp_path / "saved")
    with pytest.raises(ModelError, match=r"plan\.json") as caught:
        catro_deploy.load(folder)
    assert "model=" in caught.value.hint


class Projected(TinyNet):
    """Its logits depend on random numbers that are not in the state dict."""

    def __init__(self, classes):
        super().__init__(classes)
        self.register_buffer("gain", torch.rand(12, 1, 1) + 0.5, persistent=False)
        self.projection = torch.rand(classes, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)) * self.gain)
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(torch.relu(x + self.bn3(self.conv3(x))).mean((2, 3))) @ self.projection


def test_tensors_outside_the_state_dict_come_back(tmp_path, images):
    pruned = catro_deploy.prune(Projected(3), loader(), **QUICK)
    again = PrunedModel.load(pruned.save(tmp_path / "saved"), model=Projected)
    assert again.model.conv1.out_channels == len(again.model.gain) < 12
    with torch.inference_mode():
        assert torch.equal(again.model(images), pruned.model(images))
        assert torch.equal(again.original(images), pruned.original(images))


class Shuffled(TinyNet):
    """Its logits depend on random numbers that are no tensors."""

    def __init__(self, classes):
        super().__init__(classes)
        self.order = torch.randperm(classes).tolist()

    def forward(self, x):
        return super().forward(x)[:, self.order]


def test_a_network_that_is_rebuilt_with_other_logits_is_refused(tmp_path):
    torch.manual_seed(0)
    model = Shuffled(3)
    folder = catro_deploy.prune(model, loader(), **QUICK).save(tmp_path / "saved")
    catro_deploy.load(folder, model=model)
    other = Shuffled(3)
    other.order = model.order[1:] + model.order[:1]
    with pytest.raises(ModelError, match="Shuffled gives other logits than when it was saved"):
        catro_deploy.load(folder, model=other)


def test_a_folder_of_an_earlier_version_is_loaded(pruned, tmp_path):
    folder = RunFolder(pruned.save(tmp_path / "saved"))
    for network, path in ((pruned.model, folder.weights), (pruned.original, folder.original_weights)):
        save_file(network.state_dict(), path)
    assert same(PrunedModel.load(folder.path, model=TinyNet).model, pruned.model)


class Narrow(TinyNet):
    """Same layer names as TinyNet, different widths."""

    def __init__(self, classes):
        super().__init__(classes)
        self.conv1, self.bn1 = nn.Conv2d(3, 2, 3, 2, 1, bias=False), nn.BatchNorm2d(2)
        self.conv2 = nn.Conv2d(2, 16, 3, 1, 1, bias=False)


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        (nn.Linear(2, 3), ModelError, r"\bconv1\b.* not in"),
        (lambda classes: "a network", ModelError, r"\bstr\b"),
        (3, ModelError, r"\bint\b"),
        (Narrow, ModelError, r"\b11\b.*\bconv1\b.*\b2\b"),
        (lambda classes: TinyNet(classes, channels=1), CheckpointError, r"conv1\.weight\b.*\[8, 1, 3, 3\]"),
    ],
)
def test_another_model_is_refused(pruned, tmp_path, model, error, said):
    folder = pruned.save(tmp_path / "saved")
    with pytest.raises(error, match=said):
        catro_deploy.load(folder, model=model)


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_named(pruned, path):
    for call in (pruned.save, pruned.export, PrunedModel.load, catro_deploy.load):
        with pytest.raises(UsageError, match=f"= {path} is not a path"):
            call(path)


def test_a_run_folder_of_the_command_line_is_not_written_over(pruned, tmp_path):
    write_text(tmp_path / "run.toml", "")
    with pytest.raises(RunFolderError, match="command line"):
        pruned.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]


def test_a_network_is_not_saved_among_other_files(pruned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "notes.txt", "")
    for folder in ("", ".", tmp_path):
        with pytest.raises(RunFolderError, match=rf"{tmp_path} .*notes\.txt"):
            pruned.save(folder)
    with pytest.raises(RunFolderError, match=r"notes\.txt is a file"):
        pruned.save("notes.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_network_is_saved_again_and_next_to_its_onnx_file(pruned, tmp_path):
    pruned.export(tmp_path / "own" / "pruned.onnx")
    folder = pruned.save(tmp_path / "own")
    write_text(folder / "notes.txt", "")
    pruned.finetune(loader(), **TRAINING)
    assert same(catro_deploy.load(pruned.save(folder), model=TinyNet), pruned.model)


def test_a_save_that_was_interrupted_can_be_repeated(pruned, tmp_path):
    save_weights(pruned.original, RunFolder(tmp_path).original_weights)
    assert same(catro_deploy.load(pruned.save(tmp_path), model=TinyNet), pruned.model)


@pytest.mark.parametrize(
    ("weights", "error", "said"),
    [("foo", SettingsError, "'foo'.*finetuned, pruned, original"), ("pruned", RunFolderError, r"PrunedModel\.save")],
)
def test_weights_that_are_not_saved_are_named(pruned, tmp_path, weights, error, said):
    folder = pruned.save(tmp_path / "saved")
    with pytest.raises(error, match=rf"(?s){said}"):
        catro_deploy.load(folder, model=TinyNet, weights=weights)
