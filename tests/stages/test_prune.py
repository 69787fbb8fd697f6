import copy

import numpy as np
import pytest
import torch

from catro_deploy import networks
from catro_deploy.data import MemorySplit, open_dataset
from catro_deploy.data.base import Subset
from catro_deploy.errors import BudgetError, DataError, SettingsError
from catro_deploy.graph.coupling.trace import list_layers
from catro_deploy.graph.cut.surgery import masked
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint, save_weights
from catro_deploy.models.saved import save_network
from catro_deploy.progress import Silent
from catro_deploy.pruning import classifier
from catro_deploy.records import Keep
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages import prune as prune_stage
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import labelled_batches, prune, pruning_batches
from catro_deploy.training import accuracy, predict
from tests.tiny import CLASSES, SIZE, TinyNet
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too

SHAPE = (3, SIZE, SIZE)


def lively(seed=0):
    """A TinyNet with non-trivial normalisation layers, so that a wrongly cut channel shows in the outputs."""
    torch.manual_seed(seed)
    network = TinyNet(3).eval()
    for norm in (network.bn1, network.bn2, network.bn3):
        for tensor, low, high in ((norm.weight, 0.5, 1.5), (norm.bias, -0.5, 0.5), (norm.running_mean, -0.3, 0.3)):
            torch.nn.init.uniform_(tensor.data, low, high)
    return network


@pytest.fixture
def settings(tmp_path):
    """Make settings with a checkpoint of ``lively``; keywords go into [prune]."""
    save_weights(lively(), tmp_path / "tiny.safetensors")

    def make(**pruning):
        return Settings.model_validate(
            {
                "model": {"name": "tests.tiny:network", "checkpoint": tmp_path / "tiny.safetensors"},
                "data": {"name": "tests.tiny:dataset", "size": SIZE},
                "prune": {"budget": "50%flops", "samples_per_class": 16, "compute": "cpu"} | pruning,
            }
        )

    return make


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


def macs(network):
    return sum(layer.macs for layer in list_layers(network, SHAPE))


@pytest.mark.parametrize("criterion", ["catro", "l1"])
@pytest.mark.parametrize("allocation", ["auto", "exact", "uniform"])
@pytest.mark.parametrize(("budget", "share"), [("10%flops", 0.1), ("50%flops", 0.5), ("100%flops", 1.0)])
def test_the_plan_keeps_to_the_budget_and_counts_what_there_is(settings, run, criterion, allocation, budget, share):
    plan = prune(settings(budget=budget, criterion=criterion, allocation=allocation), run, Silent())
    assert plan == load_plan(run)
    assert plan.allocation == ("flops" if allocation == "auto" else allocation)
    assert (plan.latency, plan.dropped) == (None, ())
    original, pruned = (networks.load(run, weights=which) for which in ("original", "pruned"))
    assert plan.pruned_macs == macs(pruned) <= share * macs(original)
    assert plan.original_macs == macs(original)
    assert plan.pruned_params == sum(p.numel() for p in pruned.parameters())
    assert plan.original_params == sum(p.numel() for p in original.parameters())
    assert [(group.name, group.producers) for group in plan.groups] == [
        ("conv1", ("conv1",)),
        ("conv2", ("conv2", "conv3")),
        ("fc", ("fc",)),
    ]
    first, coupled, _ = plan.groups
    assert pruned.conv1.out_channels == pruned.conv2.in_channels == len(first.kept)
    assert pruned.conv2.out_channels == pruned.conv3.in_channels == pruned.conv3.out_channels == len(coupled.kept)
    assert pruned.fc.in_features == len(coupled.kept)
    assert pruned.fc.out_features == 3


@pytest.mark.parametrize("classes", [("even", "across"), ("even", "across", "down")])
def test_the_logits_are_those_of_the_wanted_classes_in_the_order_named(settings, run, classes):
    plan = prune(settings(classes=list(classes)), run, Silent())
    rows = [CLASSES.index(name) for name in classes]
    assert plan.classes == classes
    assert plan.class_indices == tuple(rows)
    assert plan.model_classes == 3
    whole, original = lively(), networks.load(run, weights="original")
    assert torch.equal(original.fc.weight, whole.fc.weight[rows])
    images = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(original(images), whole(images)[:, rows], rtol=0, atol=1e-6)
    assert networks.load(run, weights="pruned").fc.out_features == len(rows)


@pytest.mark.parametrize("classes", [[], ["stripes"]])
def test_the_pruned_network_computes_what_the_masked_one_does(settings, run, classes):
    plan = prune(settings(classes=classes, budget="30%flops", reconstruct=False), run, Silent())
    inner = {name: Keep(None if name == plan.head else keep.out, keep.inputs) for name, keep in plan.keeps.items()}
    reference = masked(networks.load(run, weights="original"), inner)
    images = torch.randn(16, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, found = reference(images), networks.load(run, weights="pruned")(images)
    assert (expected - found).abs().max() < 1e-5
    assert not torch.allclose(expected, networks.load(run, weights="original")(images), atol=1e-3)


def test_reloaded_it_is_the_network_that_was_in_memory(settings, run, monkeypatch):
    in_memory = {}

    def remember(network, input_shape, path):
        in_memory[path] = copy.deepcopy(network).eval()
        save_network(network, input_shape, path)

    monkeypatch.setattr(prune_stage, "save_network", remember)
    prune(settings(classes=["stripes"]), run, Silent())
    images = torch.randn(16, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for which, path in (("original", run.original_weights), ("pruned", run.pruned_weights)):
            assert torch.equal(networks.load(run, weights=which)(images), in_memory[path](images))


def test_the_same_settings_give_the_same_files(settings, run, tmp_path):
    prune(settings(), run, Silent())
    again = RunFolder(tmp_path / "again")
    prune(settings(), again, Silent())
    for file in (run.plan, run.original_weights, run.pruned_weights):
        assert file.read_bytes() == (again.path / file.name).read_bytes()


@pytest.mark.parametrize(("per_class", "batch_size", "sizes"), [(5, 4, [3, 2]), (4, 4, [4]), (100, 8, [6, 6])])
def test_samples_of_each_class_come_together_and_are_so_many(per_class, batch_size, sizes):
    labels = np.tile(np.arange(2), 12)
    pixels = torch.arange(24, dtype=torch.uint8).view(-1, 1, 1, 1)
    batches = labelled_batches(MemorySplit(pixels, labels), ["a", "b"], per_class, batch_size, seed=0)
    assert [label for _, label in batches] == [0] * len(sizes) + [1] * len(sizes)
    assert [len(images) for images, _ in batches] == sizes * 2
    for images, label in batches:
        assert set(images.flatten().tolist()) <= set(range(label, 24, 2))
    drawn = torch.cat([images for images, _ in batches]).flatten().tolist()
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_are_small_for_large_feature_maps_on_a_cpu_only(settings, monkeypatch, device):
    monkeypatch.setattr(classifier, "choose_device", lambda compute: torch.device(device))
    monkeypatch.setattr(classifier, "images_at_once", lambda model, shape, most: most // 4)
    chosen = settings(batch_size=16)
    batches = prune_stage.pruning_batches(open_original(chosen), chosen)
    assert {len(images) for images, _ in batches} == {4 if device == "cpu" else 16}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("criterion", ["catro", "l1"])
def test_the_papers_method_runs_on_a_gpu(settings, run, criterion):
    plan = prune(settings(compute="cuda", criterion=criterion, reconstruct=False), run, Silent())
    assert plan.pruned_macs <= 0.5 * plan.original_macs


def test_without_reconstruction_the_network_is_scored_on_the_device_of_its_images(settings, run, monkeypatch):
    """PyTorch's meta device, which holds no values, takes the place of a GPU."""

    class ScoredError(Exception):
        pass

    def score_channels(model, network, batches, *_):
        raise ScoredError({tensor.device.type for tensor in (*model.parameters(), *(images for images, _ in batches))})

    monkeypatch.setattr(classifier, "choose_device", lambda compute: torch.device("meta"))
    monkeypatch.setattr(classifier, "score_channels", score_channels)
    with pytest.raises(ScoredError, match=r"^\{'meta'\}$"):
        prune(settings(reconstruct=False), run, Silent())


def test_a_class_with_one_image_is_refused():
    split = MemorySplit(torch.zeros(3, 3, 4, 4, dtype=torch.uint8), np.array([0, 0, 1]))
    with pytest.raises(DataError, match=r"\bclass b\b.*\b1\b") as caught:
        labelled_batches(split, ["a", "b"], 8, 8, 0)
    assert "leave it out" in caught.value.hint


def test_a_budget_that_is_too_small_names_the_smallest(settings, run):
    with pytest.raises(BudgetError, match=r"\b1%flops\b.*\b5\.59%flops"):
        prune(settings(budget="1%flops"), run, Silent())
    assert not run.path.exists()
    # Three channels everywhere: three convolutions of 64 positions * 9 weights * 3 * 3, and 3 * 3 in the head.
    assert prune(settings(budget="5.59%flops"), run, Silent()).pruned_macs == 3 * 64 * 9 * 9 + 9


@pytest.mark.slow
@pytest.mark.data
def test_the_original_knows_the_speed_limits_of_gtsrb(gtsrb_root, test_data, tmp_path):
    """ResNet-20 with 43 classes, of which eight are wanted: 99.44% of 4,260 test images, as when it was trained."""
    settings = Settings.model_validate(
        {
            "model": {
                "name": "cifar_resnet20",
                "checkpoint": test_data / "weights" / "gtsrb_resnet20.pth",
                "mean": (0.3403, 0.3121, 0.3214),
                "std": (0.2724, 0.2608, 0.2669),
            },
            "data": {"name": "gtsrb", "root": gtsrb_root},
            "prune": {
                "classes": ["speed_limits"],
                "budget": "50%flops",
                "samples_per_class": 16,
                "compute": "cpu",
                "criterion": "l1",
            },
        }
    )
    run = RunFolder(tmp_path)
    plan = prune(settings, run, Silent())
    assert plan.class_indices == tuple(range(1, 9))
    test = Subset(open_dataset(settings.data, (32, 32), 3).test, plan.class_indices)
    assert len(test.labels) == 4260
    logits = predict(networks.load(run, weights="original"), test, plan.mean, plan.std, 256)
    assert accuracy(logits, test.labels) == pytest.approx(0.9944, abs=0.002)
    whole = build_model(settings.model.name, 43)
    load_checkpoint(whole, settings.model.checkpoint)
    some = predict(whole, test.at(np.arange(0, 4260, 17)), plan.mean, plan.std, 256)  # of each class
    torch.testing.assert_close(some[:, 1:9], logits[::17], rtol=0, atol=1e-4)


@pytest.fixture
def unlabelled(settings):
    """Settings for images without labels."""
    made = settings(classes=[0, 2], samples_per_class=10, batch_size=8)
    return made.model_copy(update={"data": made.data.model_copy(update={"name": "tests.tiny:unlabelled"})})


def test_without_labels_batches_are_of_all_images_and_one_class(unlabelled):
    original = open_original(unlabelled)
    assert (original.classes, original.wanted) == (("0", "1", "2"), (0, 2))
    assert original.model(torch.zeros(1, *SHAPE)).shape == (1, 2)
    batches = pruning_batches(original, unlabelled)
    assert [(len(images), label) for images, label in batches] == [(7, 0), (7, 0), (6, 0)]
    again = pruning_batches(original, unlabelled)
    assert torch.equal(batches[1][0], again[1][0])
    few = pruning_batches(original, pruning_by(unlabelled, max_samples=7))
    assert sum(len(images) for images, _ in few) == 2 * 3


def test_of_all_classes_together_no_more_images_are_drawn_than_allowed(settings):
    made = settings(samples_per_class=10, max_samples=13)
    batches = pruning_batches(open_original(made), made)
    assert [(len(images), label) for images, label in batches] == [(4, 0), (4, 1), (4, 2)]


def pruning_by(settings, **changes):
    return settings.model_copy(update={"prune": settings.prune.model_copy(update=changes)})


@pytest.mark.parametrize("criterion", ["catro", "obs", "l1"])
@pytest.mark.parametrize("allocation", ["auto", "exact", "greedy", "flops", "uniform"])
def test_without_labels_every_criterion_and_allocation_keeps_to_the_budget(unlabelled, run, criterion, allocation):
    plan = prune(pruning_by(unlabelled, criterion=criterion, allocation=allocation), run, Silent())
    assert plan == load_plan(run)
    assert plan.criterion == criterion
    assert plan.allocation == {"auto": "exact", "greedy": "flops"}.get(allocation, allocation)
    assert 0.4 * plan.original_macs < plan.pruned_macs <= 0.5 * plan.original_macs
    assert plan.reconstruction.kl_reconstructed <= plan.reconstruction.kl_cut
    assert all(group.trace_ratio is group.scale is None for group in plan.groups)
    assert networks.load(run, weights="pruned").fc.out_features == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"reconstruct": False}, "reconstruct = false"), ({"worth": "scatter"}, 'worth = "scatter"')],
)
def test_class_separation_is_refused_without_labels(unlabelled, run, changes, said):
    with pytest.raises(SettingsError, match=said):
        prune(pruning_by(unlabelled, **changes), run, Silent())
    assert not run.plan.exists()


def test_obs_without_reconstruction_leaves_the_weights_of_what_stays(settings, run):
    plan = prune(settings(criterion="obs", reconstruct=False), run, Silent())
    assert (plan.criterion, plan.reconstruction) == ("obs", None)
    kept = networks.load(run, weights="pruned").conv1.weight
    assert torch.equal(kept, lively().conv1.weight[list(plan.groups[0].kept)])
    by_classes = prune(settings(reconstruct=False), RunFolder(run.path / "catro"), Silent())
    assert [len(group.kept) for group in plan.groups] == [len(group.kept) for group in by_classes.groups]
    assert [group.kept for group in plan.groups] != [group.kept for group in by_classes.groups]
