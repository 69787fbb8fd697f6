"""Feature maps as a target, against sums computed by hand."""

import copy

import pytest
import torch
from torch import nn

from catro_deploy.models.cifar_resnet import cifar_resnet
from catro_deploy.records import Keep
from catro_deploy.training import TrainingJob, fit
from catro_deploy.training.compute import Hardware
from catro_deploy.training.features import Channels, Features, features_of, inputs_of
from catro_deploy.training.objective import Objective
from catro_deploy.training.stepper import Stepper
from tests.report.made import make_plan
from tests.training.helpers import MEAN, STD, Recorder, options, separable_split, small_network

CPU = Hardware(torch.device("cpu"), None, torch.contiguous_format)


def test_the_loss_is_the_relative_distance_of_the_kept_channels_by_hand():
    # Channels 0 and 2 of the original hold 1, 3 and 5, 7: their squares sum to 84, those of the pruned maps to 54.
    original = {"conv": torch.tensor([[[1.0, 3.0], [100.0, 100.0], [5.0, 7.0]]]).unsqueeze(-1)}
    pruned = {"conv": torch.tensor([[[2.0, 3.0], [5.0, 4.0]]]).unsqueeze(-1)}
    expected = 2.0 * (1 + 0 + 0 + 9) / 84
    assert Features(2.0, {"conv": Channels(1, torch.tensor([0, 2]))}).loss(pruned, original).item() == pytest.approx(
        expected
    )


def test_layers_that_read_the_same_tensor_count_once():
    both, own = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])
    original = dict.fromkeys(("a", "b", "c"), torch.tensor([[0.0, 2.0]]))
    found = Features(1.0, dict.fromkeys(("a", "b", "c"), Channels(-1))).loss({"a": both, "b": both, "c": own}, original)
    assert found.item() == pytest.approx((1 / 5 + 4 / 16) / 2)


def test_maps_of_zeros_give_a_finite_loss():
    zeros = torch.zeros(2, 3)
    assert Features(1.0, {"fc": Channels(-1)}).loss({"fc": zeros}, {"fc": zeros}).item() == 0


def test_maps_of_a_dead_layer_do_not_dominate():
    dead, alive = torch.full((2, 3), 1e-9), torch.ones(2, 3)
    assert Features(1.0, {"fc": Channels(-1)}).loss({"fc": alive}, {"fc": dead}).item() == pytest.approx(1.0)


def test_a_layer_that_one_network_does_not_run_does_not_count():
    maps, features = torch.ones(2, 3), Features(1.0, dict.fromkeys(("fc", "aux"), Channels(-1)))
    assert features.loss({"fc": 2 * maps, "aux": 5 * maps}, {"fc": maps}).item() == pytest.approx(1 / 4)


def test_tokens_have_their_channels_last():
    original = torch.arange(24.0).view(2, 3, 4)  # images, tokens, channels
    pruned = original[..., [1, 3]].clone().requires_grad_()
    loss = Features(1.0, {"mlp": Channels(-1, torch.tensor([1, 3]))}).loss({"mlp": pruned}, {"mlp": original})
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(pruned.grad, torch.zeros_like(pruned))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_loss_does_not_depend_on_layouts(layout):
    original, pruned = torch.randn(2, 4, 3, 3), torch.randn(2, 2, 3, 3)
    features = Features(1.0, {"conv": Channels(1, torch.tensor([0, 3]))})
    kept = original[:, [0, 3]]
    expected = (pruned - kept).square().sum() / max(kept.square().sum(), pruned.square().sum())
    for other in (torch.contiguous_format, torch.channels_last):
        maps = {"conv": pruned.to(memory_format=layout)}, {"conv": original.to(memory_format=other)}
        assert features.loss(*maps).item() == pytest.approx(expected.item(), rel=1e-5)


def residual_layers() -> set[str]:
    """The layers of a ResNet-20 that read the end of a stage or block: all first ones of blocks, and the head."""
    firsts = {f"layer{stage}.{block}.conv1" for stage in (1, 2, 3) for block in range(3)}
    return firsts | {"layer2.0.downsample.0", "layer3.0.downsample.0", "fc"}


def test_sums_of_residual_branches_are_compared():
    network = cifar_resnet(20, 10)
    plan = make_plan(keeps={"layer1.1.conv1": Keep(inputs=(0, 5))})
    found = features_of(network, network, plan, 3.0)
    assert set(found.layers) == residual_layers()
    assert found.layers["layer1.1.conv1"].kept.tolist() == [0, 5]
    assert found.layers["fc"].kept is None
    assert found.weight == 3.0


def test_layers_that_were_removed_are_not_compared():
    pruned = cifar_resnet(20, 10)
    pruned.layer1[1] = nn.Identity()
    assert set(features_of(cifar_resnet(20, 10), pruned, make_plan(), 3.0).layers) == residual_layers() - {
        "layer1.1.conv1"
    }


def test_without_sums_all_inputs_of_layers_are_compared():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(5 * 16, 10))
    assert set(features_of(network, network, make_plan(input_shape=(3, 8, 8)), 1.0).layers) == {"2", "4"}


class Inverted(nn.Module):
    """A stem, a block that widens, filters each channel, scales it by a gate and narrows again, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.expand = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 1)
        self.depthwise, self.project = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 4, 1)
        self.squeeze, self.gate = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.head = nn.Linear(4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.stem(images)
        wide = self.depthwise(self.expand(maps))
        gate = self.gate(torch.relu(self.squeeze(wide.mean(dim=(2, 3), keepdim=True))))
        maps = maps + self.project(wide * torch.sigmoid(gate))
        return self.head(maps.mean(dim=(2, 3)))


def test_neither_a_depthwise_convolution_nor_a_gate_adds_to_maps():
    network = Inverted()
    assert set(features_of(network, network, make_plan(input_shape=(3, 8, 8)), 1.0).layers) == {"expand", "head"}


def test_nothing_is_compared_without_a_weight():
    assert not features_of(nn.Identity(), nn.Identity(), make_plan(), 0.0)


def test_inputs_are_collected_in_the_block_only():
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    with inputs_of(network, ["1"]) as found:
        network(torch.ones(1, 2))
    assert torch.equal(found["1"], network[0](torch.ones(1, 2)))
    assert not network[1]._forward_pre_hooks


def test_a_layer_that_is_called_by_keyword_is_left_out():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 4)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.second(input=self.first(images))

    with inputs_of(network := Named(), ["first", "second"]) as found:
        network(torch.ones(1, 2))
    assert list(found) == ["first"]


def test_the_objective_adds_the_distance():
    teacher, images = cifar_resnet(20, 10).eval(), torch.randn(4, 3, 32, 32)
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        student.layer1[0].conv1.weight.mul_(0.5)
    labels, features = torch.arange(4), features_of(teacher, student, make_plan(), 2.0)
    objective = Objective(CPU, teacher=teacher, distill=0.5, features=features)
    with torch.no_grad(), objective.watching(student) as maps, inputs_of(teacher, features.layers) as original:
        logits = student(images)
        teacher(images)
    without = Objective(CPU, teacher=teacher, distill=0.5)(logits, images, labels)
    expected = without + features.loss(maps, original)
    assert objective(logits, images, labels, maps).item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("distill", [0.0, 1.0])
def test_steps_bring_the_maps_closer(distill):
    torch.manual_seed(0)
    teacher = cifar_resnet(20, 10).eval()
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    features = features_of(teacher, student, make_plan(), 5.0)
    objective = Objective(CPU, teacher=teacher, distill=distill, features=features)
    stepper = Stepper(student.eval(), objective, options(weight_decay=0.0, max_grad_norm=1.0), CPU)
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8)

    def distance() -> float:
        with (
            torch.no_grad(),
            inputs_of(student, features.layers) as maps,
            inputs_of(teacher, features.layers) as original,
        ):
            student(images), teacher(images)
        return features.loss(maps, original).item()

    before = distance()
    for _ in range(20):
        stepper.step(images, labels, 0.01)
    assert distance() < 0.7 * before


def test_a_training_that_compares_maps_is_not_compiled_and_says_so(tmp_path):
    model, recorder = small_network(), Recorder()
    job = TrainingJob(
        model,
        separable_split(90),
        separable_split(21, seed=1),
        options(compile=True, epochs=1),
        MEAN,
        STD,
        "test",
        teacher=small_network(seed=1),
        features=Features(1.0, {"3": Channels(1), "9": Channels(-1)}),
    )
    assert fit(job, tmp_path / "state.safetensors", recorder).epochs
    assert any("distill_features" in note for note in recorder.notes)
    assert not any(module._forward_pre_hooks for module in model.modules())
