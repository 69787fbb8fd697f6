import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import catro_deploy
from catro_deploy import networks
from catro_deploy.api import pruning as api_pruning
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import BudgetError, DataError, ModelError, SettingsError, TargetError
from catro_deploy.files import write_text
from catro_deploy.graph.coupling import trace
from catro_deploy.graph.coupling.probe import stubborn
from catro_deploy.graph.coupling.trace import list_layers
from catro_deploy.graph.cut.surgery import masked
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.progress import Silent
from catro_deploy.pruning import finding
from catro_deploy.records import Keep
from catro_deploy.resources import find
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages.prune import prune as prune_stage
from tests.stages.conftest import TRIAL
from tests.stages.conftest import lively as lively_blocks
from tests.stages.test_prune import SHAPE, lively
from tests.tiny import CLASSES, PROFILE_PROTOCOL, SIZE, TinyNet, dataset
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
QUICK = {"budget": "50%flops", "samples_per_class": 16, "compute": "cpu"}


def loader(split="train", batch_size=16):
    """The tiny images as a user provides them: normalised, in batches, ordered by class."""
    images = getattr(dataset(None, (SIZE, SIZE), 3), split)
    tensors = TensorDataset(normalise(images.pixels, MEAN, STD), torch.from_numpy(images.labels))
    return DataLoader(tensors, batch_size=batch_size)


@pytest.fixture
def images():
    return torch.randn(16, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "classes", [None, np.array([2, 0]), torch.tensor([2, 0]), ["even", "across"], ["even", "down", "across"]]
)
def test_the_pruned_network_is_the_masked_original_of_the_wanted_classes(images, classes):
    model = lively()
    pruned = catro_deploy.prune(model, loader(), classes=classes, class_names=CLASSES, reconstruct=False, **QUICK)
    rows = (
        [0, 1, 2] if classes is None else [CLASSES.index(name) if isinstance(name, str) else name for name in classes]
    )
    plan = pruned.plan
    assert plan.class_indices == tuple(rows)
    assert plan.classes == tuple(CLASSES[row] for row in rows)
    inner = {name: Keep(None if name == plan.head else keep.out, keep.inputs) for name, keep in plan.keeps.items()}
    with torch.inference_mode():
        torch.testing.assert_close(pruned.original(images), model(images)[:, rows], rtol=0, atol=1e-6)
        torch.testing.assert_close(pruned.model(images), masked(pruned.original, inner)(images), rtol=0, atol=1e-5)
        assert not torch.allclose(pruned.model(images), pruned.original(images), atol=1e-3)
    macs = [sum(layer.macs for layer in list_layers(network, SHAPE)) for network in (pruned.original, pruned.model)]
    assert [plan.original_macs, plan.pruned_macs] == macs
    assert macs[1] <= 0.5 * macs[0]
    assert (plan.model, plan.mean, plan.std) == ("", (), ())


def test_a_network_that_views_its_maps_as_rows_is_pruned_and_learns():
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU())
            self.head = nn.LazyLinear(len(CLASSES))

        def forward(self, images):
            maps = self.convs(images)
            return self.head(maps.view(maps.shape[0], -1))

    model = Viewing()
    model(torch.zeros(1, *SHAPE))
    pruned = catro_deploy.prune(model.eval(), loader(), **QUICK)
    pruned.finetune(loader(), epochs=1, distill=0.5, compute="cpu", amp=False)
    assert pruned.plan.pruned_macs <= 0.5 * pruned.plan.original_macs


def test_the_given_model_stays_as_it_was():
    model = lively().train()
    before = copy.deepcopy(model.state_dict())
    catro_deploy.prune(model, loader(), classes=[0, 1], **QUICK)
    assert model.training
    assert list(before) == list(model.state_dict())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_it_does_what_the_command_line_does(tmp_path):
    """With all 24 images per class, so that nothing is sampled randomly."""
    save_weights(lively(), tmp_path / "tiny.safetensors")
    pruning = {"budget": "40%flops", "classes": ["across", "down"], "samples_per_class": 24, "compute": "cpu"}
    settings = Settings.model_validate(
        {
            "model": {"name": "tests.tiny:network", "checkpoint": tmp_path / "tiny.safetensors"},
            "data": {"name": "tests.tiny:dataset", "size": SIZE},
            "prune": pruning,
        }
    )
    run = RunFolder(tmp_path / "run")
    expected = prune_stage(settings, run, Silent())
    found = catro_deploy.prune(
        lively(), loader(), name="tests.tiny:network", class_names=CLASSES, mean=MEAN, std=STD, **pruning
    )
    assert replace(found.plan, first_look=None) == replace(expected, first_look=None)  # computed on other images
    for weights, network in (("pruned", found.model), ("original", found.original)):
        there = networks.load(run, weights=weights).state_dict()
        assert all(torch.equal(there[name], tensor) for name, tensor in network.state_dict().items())


def test_normalisation_and_class_names_may_be_arrays_or_tensors(tmp_path):
    given = {"mean": np.array(MEAN), "std": torch.tensor(STD), "class_names": np.array(CLASSES)}
    pruned = catro_deploy.prune(lively(), loader(), **given, **QUICK)
    plan = load_plan(RunFolder(pruned.save(tmp_path / "saved")))
    assert (plan.mean, plan.std, plan.classes) == (MEAN, STD, CLASSES)


def test_a_generator_is_enough():
    first = catro_deploy.prune(lively(), loader(), **QUICK)
    assert catro_deploy.prune(lively(), iter(loader()), **QUICK).plan == first.plan


def test_an_empty_first_batch_is_skipped():
    images, labels = next(iter(loader()))
    found = catro_deploy.prune(lively(), [(images[:0], labels[:0]), *loader()], **QUICK)
    assert found.plan == catro_deploy.prune(lively(), loader(), **QUICK).plan


@pytest.fixture
def traces(monkeypatch):
    """A list with one entry per trace: it records the last step of a trace, which runs once if nothing is doubtful."""
    found = []

    def noted(*given):
        found.append(given)
        return stubborn(*given)

    monkeypatch.setattr(trace, "stubborn", noted)
    return found


def test_a_network_is_traced_once(traces):
    catro_deploy.prune(lively(), loader(), **QUICK)
    assert len(traces) == 1


@pytest.mark.slow
def test_a_budget_of_latency_is_measured_here_and_the_network_traced_once(tmp_path, monkeypatch, traces):
    write_text(tmp_path / "few.toml", PROFILE_PROTOCOL)
    write_text(tmp_path / "trial.toml", TRIAL)
    monkeypatch.setattr(finding, "CANDIDATES", str(tmp_path / "trial.toml"))
    pruned = catro_deploy.prune(
        lively_blocks(),
        loader(),
        budget="0.8x",
        profile=str(tmp_path / "few.toml"),
        samples_per_class=16,
        compute="cpu",
    )
    latency = pruned.plan.latency
    assert latency.how == "measured"
    assert min(round_.speedup.ratio for round_ in latency.rounds) <= 0.8
    assert len(traces) == 1


def test_latency_that_can_neither_be_measured_nor_estimated_is_refused_at_once(tmp_path):
    file = tmp_path / "box.toml"
    write_text(file, find("targets", "x86-cpu").read_text().replace("\n[sources]", '\ntransport = "ssh"\n[sources]', 1))
    with pytest.raises(TargetError, match=r"(?s)\bbox\b.*\[gpu\].*50%flops"):
        catro_deploy.prune(lively(), [], target=file)
    assert catro_deploy.prune(lively(), loader(), target=file, **QUICK).plan.target == str(file)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"max_energy": "3mJ"}, "does not report power"), ({"also": ["jetson-orin"]}, "cannot run on jetson-orin")],
)
def test_what_cannot_be_measured_is_refused_before_images_are_read(options, said):
    with pytest.raises(TargetError, match=said):
        catro_deploy.prune(lively(), [], **QUICK | options)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"budget": "half"}, BudgetError, "'half'"),
        ({"budget": None}, BudgetError, "None is no budget"),
        ({"progress": 5}, SettingsError, "progress = 5 has no methods task and note"),
        ({"budget": "1%flops"}, BudgetError, r"\b1%flops\b.*\b5\.59%flops"),
        ({"target": "toaster"}, TargetError, "toaster"),
        ({"samples": 3}, SettingsError, r"prune\.samples\b"),
        ({"d_min": 0}, SettingsError, r"prune\.d_min = 0\b"),
        ({"threads": 0}, SettingsError, r"bench\.threads = 0\b"),
        ({"classes": [0, 3]}, DataError, r"\bclass 3\b"),
        ({"classes": [1]}, DataError, "only: 1"),
        ({"classes": "stop"}, SettingsError, r"'stop' is no sequence"),
        ({"classes": 1}, SettingsError, r"1 is no sequence"),
        ({"classes": [True, False, True]}, SettingsError, r"True(?s:.*)numpy\.flatnonzero\(mask\)"),
        ({"classes": np.array([True, False, True])}, SettingsError, r"True(?s:.*)numpy\.flatnonzero\(mask\)"),
        ({"classes": torch.tensor([True, False, True])}, SettingsError, r"True(?s:.*)numpy\.flatnonzero\(mask\)"),
        ({"classes": [0.0, 1.9]}, SettingsError, r"\b0\.0\b.* index"),
        ({"classes": [0, None]}, SettingsError, r"\bNone\b.* index"),
        ({"class_names": ["a", "b"]}, DataError, r"\b2\b.*class names.*\b3 logits\b"),
        ({"class_names": ["a", "b", "a"]}, DataError, r"\b2\b.*class names.*\b3 logits\b"),
        ({"mean": (0.5,), "std": (0.5,)}, DataError, r"\bmean\b.*\b1\b.*\bstd\b.*\b1\b.*\b3\b"),
        ({"mean": MEAN}, DataError, r"\bmean\b.*\b3\b.*\bstd\b.*\b0\b"),
        ({"mean": (127.5,) * 3, "std": (63.75,) * 3}, DataError, r"0\.\.255\b.*\[0\.5, 0\.5, 0\.5\].*\[0\.25, "),
        ({"mean": MEAN, "std": (0.25, 0.25, 0.0)}, DataError, r"std = \[0\.25, 0\.25, 0\.0\].*\b1e-06"),
        ({"mean": MEAN, "std": (0.25, -0.25, 0.25)}, DataError, r"std = \[0\.25, -0\.25, "),
        ({"mean": MEAN, "std": (float("nan"),) * 3}, DataError, r"\bnan\b.* finite"),
        ({"mean": (float("nan"),) * 3, "std": STD}, DataError, r"\bnan\b.* finite"),
        ({"mean": 0.5, "std": 0.25}, DataError, r"mean = 0\.5 .*numbers"),
        ({"class_names": "abc"}, DataError, "'abc' is no sequence of names"),
        ({"class_names": 3}, DataError, "3 is no sequence of names"),
        ({"name": 3}, ModelError, "3 is no string"),
        (
            {"criterion": "best"},
            SettingsError,
            r"^Wrong settings \(keywords\):\nprune\.criterion = 'best' does not fit",
        ),
        ({"class_names": range(3)}, DataError, r"\bclass name 0 is of type int\b"),
        ({"ignore": ["conv9"]}, ModelError, "conv9"),
        ({"name": "tests.tiny:blocks"}, ModelError, r"stem\.weight\b.*\(32, 3, 3, 3\)"),
        ({"name": "tests.tiny:grey_network"}, ModelError, r"conv1\.weight\b.*\(12, 1, 3, 3\).*\(12, 3, 3, 3\)"),
    ],
)
def test_what_does_not_fit_is_named(options, error, said):
    with pytest.raises(error, match=said) as caught:
        catro_deploy.prune(lively(), loader(), **QUICK | options)
    assert caught.value.hint


class TwoPredictions(TinyNet):
    def forward(self, x):
        return super().forward(x), x


class Maps(TinyNet):
    def forward(self, x):
        return self.conv1(x)


class Sums(TinyNet):
    """Five logits made from three outputs of the last layer."""

    def forward(self, x):
        three = super().forward(x)
        return torch.cat([three, three[:, :2]], dim=1)


class HeadFirst(TinyNet):
    """Another layer runs after the layer of the logits."""

    def __init__(self, classes):
        super().__init__(classes)
        self.after = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))).mean((2, 3))
        logits = self.fc(x)
        self.after(x)
        return logits


def test_the_head_is_the_layer_of_the_logits_at_any_position(images):
    model = HeadFirst(3).eval()
    pruned = catro_deploy.prune(model, loader(), classes=[0, 2], **QUICK)
    assert pruned.plan.head == "fc"
    with torch.inference_mode():
        torch.testing.assert_close(pruned.original(images), model(images)[:, [0, 2]], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "classes", "said"),
    [
        (TwoPredictions(3), None, r"\btuple\b.*\b16\b"),
        (Maps(3), None, r"\(16, 12, 8, 8\).*\b16\b"),
        (Sums(3), [0, 4], r"\bfc\b"),
        (Sums(3), [0, 1], r"\bfc\b"),
        (TinyNet, None, r"The model is a type, not a torch\.nn\.Module"),
        (lively, None, r"The model is a function, not a torch\.nn\.Module"),
        (nn.Flatten(), None, r"no convolution|\(3, 16, 16\)"),
    ],
)
def test_a_model_that_is_no_classifier_is_refused(model, classes, said):
    with pytest.raises(ModelError, match=said):
        catro_deploy.prune(model, loader(), classes=classes, **QUICK)


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile, torch.nn.Module.double, torch.nn.Module.half])
def test_a_wrapped_model_and_other_floats_are_pruned_as_the_module_itself(images, wrap):
    pruned = catro_deploy.prune(wrap(lively()), loader(), **QUICK)
    itself = catro_deploy.prune(lively().half() if wrap is nn.Module.half else lively(), loader(), **QUICK)
    assert pruned.plan.keeps == itself.plan.keeps
    with torch.inference_mode():
        torch.testing.assert_close(pruned.model(images), itself.model(images))
    assert all(parameter.dtype == torch.float32 for parameter in pruned.model.parameters())


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
def test_a_torchscript_module_is_refused():
    with pytest.raises(ModelError, match=r"TorchScript module[\s\S]*torch\.nn\.Module that it was made from"):
        catro_deploy.prune(torch.jit.trace(lively(), torch.zeros(1, *SHAPE)), loader(), **QUICK)


def test_the_seed_of_numpy_and_of_torch_are_left_alone():
    model, batches = lively(), list(loader())
    torch.manual_seed(3)
    np.random.seed(3)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(3)
    np.random.seed(3)
    catro_deploy.prune(model, batches, **QUICK)
    assert (torch.rand(1), np.random.rand()) == expected


def alone(split="train"):
    return [images for images, _ in loader(split)]


@pytest.mark.parametrize("criterion", ["catro", "obs"])
def test_images_alone_are_enough(criterion):
    pruned = catro_deploy.prune(lively(), alone(), classes=[0, 2], criterion=criterion, **QUICK)
    assert (pruned.plan.criterion, pruned.plan.class_indices) == (criterion, (0, 2))
    assert pruned.plan.reconstructed
    assert pruned.plan.pruned_macs <= 0.5 * pruned.plan.original_macs
    assert pruned.model(torch.zeros(1, *SHAPE)).shape == (1, 2)
    assert pruned.agreement(alone("test")).share > 0.9


def test_of_images_alone_so_many_count_as_of_all_classes(monkeypatch):
    seen = []

    def noted(original, samples, settings, progress, *, labelled):
        seen.extend(samples)
        assert not labelled
        return real(original, samples, settings, progress, labelled=labelled)

    real = api_pruning.prune_classifier

    monkeypatch.setattr(api_pruning, "prune_classifier", noted)
    catro_deploy.prune(lively(), alone(), **(QUICK | {"samples_per_class": 10, "batch_size": 20}))
    assert [(len(images), label) for images, label in seen] == [(20, 0), (10, 0)]
    assert torch.equal(torch.cat([images for images, _ in seen]), torch.cat(alone())[:30])
    seen.clear()
    catro_deploy.prune(lively(), alone(), **(QUICK | {"max_samples": 31}))
    assert sum(len(images) for images, _ in seen) == 30


@pytest.mark.parametrize(
    ("options", "said"), [({"reconstruct": False}, "reconstruct = false"), ({"worth": "scatter"}, 'worth = "scatter"')]
)
def test_class_separation_is_refused_for_images_alone(options, said):
    with pytest.raises(SettingsError, match=said):
        catro_deploy.prune(lively(), alone(), **QUICK, **options)
