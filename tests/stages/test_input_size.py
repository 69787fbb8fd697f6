"""Pruned networks that compute at a smaller size than the images that they and the original take."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional

from catro_deploy import networks
from catro_deploy.errors import SettingsError
from catro_deploy.graph.coupling.macs import count_macs
from catro_deploy.models import build_model
from catro_deploy.progress import Silent
from catro_deploy.pruning.cutting import at_input_size
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages.export import export
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import prune
from catro_deploy.stages.ways import smaller_sizes
from tests.tiny import SIZE
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too

pytestmark = pytest.mark.usefixtures("short_trials")

SHAPE = (3, SIZE, SIZE)
IMAGES = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def settings(folder):
    """Make settings; keywords go into [prune]."""

    def make(**pruning):
        return Settings.model_validate(
            {
                "model": {"name": "tests.tiny:blocks", "checkpoint": folder / "blocks.safetensors"},
                "data": {"name": "tests.tiny:dataset", "size": SIZE},
                "prune": {"samples_per_class": 16, "compute": "cpu", "input_size": 12} | pruning,
                "profile": {"protocol": str(folder / "few.toml")},
                "finetune": {"epochs": 1, "compute": "cpu"},
            }
        )

    return make


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


def test_a_budget_of_macs_is_a_share_of_the_original_at_its_own_size(settings, run):
    plan = prune(settings(budget="40%flops"), run, Silent())
    assert plan == load_plan(run)
    assert (plan.input_shape, plan.resized_to) == (SHAPE, (12, 12))
    original, pruned = networks.load(run, weights="original"), networks.load(run, weights="pruned")
    assert plan.original_macs == count_macs(original, SHAPE)
    assert plan.pruned_macs == count_macs(pruned, SHAPE)
    # At 12x12 the whole network needs (12/16)^2 = 56%: the budget leaves 71% of that, not 40%.
    assert 0.35 * plan.original_macs < plan.pruned_macs <= 0.4 * plan.original_macs


def test_the_networks_come_back_and_only_the_pruned_one_resizes(settings, run):
    chosen = settings(budget="40%flops", reconstruct=False)
    prune(chosen, run, Silent())
    cut, whole = networks.load_cut(run), open_original(chosen).model
    at_size = functional.interpolate(IMAGES, (12, 12), mode="bilinear")
    with torch.no_grad():
        assert torch.equal(networks.load(run, weights="original")(IMAGES), whole(IMAGES))
        for network in (cut, networks.load(run, weights="pruned")):
            assert torch.equal(network(IMAGES), network(at_size.clone()))  # 12x12 stays 12x12
    finetune(chosen, run, Silent())
    files = export(chosen, run, Silent())
    for file, network in ((files.original, networks.load(run, weights="original")), (files.pruned, networks.load(run))):
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"image": IMAGES[:1].numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, network(IMAGES[:1]).numpy(), rtol=1e-3, atol=1e-4)


def test_a_budget_of_latency_is_met_by_measurement_against_the_original_size(settings, run):
    plan = prune(settings(budget="0.5x"), run, Silent())
    latency = plan.latency
    (taken,) = [round_ for round_ in latency.rounds if round_.taken]
    assert taken.speedup.ratio <= 0.5
    assert latency.source.endswith("scaled to input size 12")
    assert latency.errors is None  # the profile's errors are those of networks at the original size
    assert plan.pruned_macs < 0.56 * plan.original_macs


def test_an_estimate_is_a_share_of_the_original_at_its_own_size(settings, run):
    own = prune(settings(target="jetson-orin", budget="0.9x", input_size=None), run, Silent()).latency
    smaller = prune(settings(target="jetson-orin", budget="0.9x"), run, Silent()).latency
    assert smaller.original_us == own.original_us
    assert sum(before for before, _ in smaller.by_layer.values()) <= sum(before for before, _ in own.by_layer.values())


def test_a_size_that_is_larger_or_does_not_work_is_refused(settings):
    original = open_original(settings())
    with pytest.raises(SettingsError, match="larger than the images, which are 16"):
        at_input_size(original, (12, 20))
    assert at_input_size(original, (SIZE, SIZE)) is original

    class Fixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3 * SIZE * SIZE, 3)

        def forward(self, x):
            return self.fc(x.flatten(1))

    fixed = replace(original, model=Fixed(), head="fc")
    with pytest.raises(SettingsError, match="fails on images of 12"):
        at_input_size(fixed, (12, 12))
    assert smaller_sizes(fixed) == []


def test_a_size_below_the_stride_is_refused(settings):
    model = build_model("cifar_resnet20", 3).eval()  # two layers of stride 2
    original = replace(open_original(settings()), model=model, input_shape=(3, 32, 32))
    assert at_input_size(original, (4, 4)).resized_to == (4, 4)
    for size in ((1, 1), (3, 3), (3, 32)):
        with pytest.raises(SettingsError, match="smaller than the network's stride, 4"):
            at_input_size(original, size)


@pytest.mark.parametrize(
    ("model", "size", "expected"),
    [
        ("cifar_resnet20", (32, 32), [(28, 28), (24, 24), (20, 20)]),  # its stride is 4
        ("torchvision:mobilenet_v2", (96, 96), [(64, 64)]),  # its stride is 32: 96 * 7/8 rounds to 96 itself
        ("torchvision:mobilenet_v2", (224, 224), [(192, 192), (160, 160), (128, 128)]),
        ("torchvision:mobilenet_v2", (256, 192), [(224, 160), (192, 128), (160, 128)]),
    ],
)
def test_sizes_to_try_are_multiples_of_the_stride(settings, model, size, expected):
    original = replace(open_original(settings()), model=build_model(model, 3).eval(), input_shape=(3, *size))
    assert smaller_sizes(original) == expected
