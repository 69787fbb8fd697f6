"""A network is loaded from its run folder unchanged."""

import copy
import json
from dataclasses import replace

import pytest
import torch

from catro_deploy import networks
from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import list_layers, trace
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of
from catro_deploy.graph.fx.depth import drop_branches
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.records import GroupPlan, Keep, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan, save_plan

DROPPED = ("layer1.1.conv2", "layer2.0.conv2")
SHAPE = (3, 32, 32)


def plan(keeps: dict[str, Keep], dropped: tuple[str, ...] = DROPPED) -> Plan:
    return Plan(
        model="cifar_resnet20",
        model_classes=5,
        input_shape=SHAPE,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        classes=("one", "two"),
        class_indices=(1, 2),
        head="fc",
        target="x86-cpu",
        budget="50%flops",
        criterion="catro",
        allocation="greedy",
        groups=(GroupPlan("fc", 2, (0, 1), ("fc",), fixed="the outputs"),),
        keeps=keeps,
        original_macs=2,
        pruned_macs=1,
        original_params=2,
        pruned_params=1,
        dropped=dropped,
    )


@pytest.fixture
def made(tmp_path):
    """A run folder with the network of ``plan``, and the three networks that it contains."""
    torch.manual_seed(0)
    original = apply_keeps_(build_model("cifar_resnet20", 5), {"fc": Keep(out=(1, 2))})
    pruned = drop_branches(original, DROPPED)
    network = trace(pruned, SHAPE)
    kept = {group.name: range(1, group.width) for group in network.groups if not group.fixed}
    keeps = keeps_of(network.groups, kept, network.sizes)
    apply_keeps_(pruned, keeps)
    finetuned = copy.deepcopy(pruned).train()
    finetuned(torch.randn(4, *SHAPE)).sum().backward()
    torch.optim.SGD(finetuned.parameters(), 0.01).step()
    run = RunFolder(tmp_path)
    save_weights(original, run.original_weights)
    save_weights(pruned, run.pruned_weights)
    save_weights(finetuned, run.weights)
    save_plan(plan(keeps | {"fc": Keep((1, 2), keeps["fc"].inputs)}), run.plan)
    return run, {"original": original, "pruned": pruned.eval(), "finetuned": finetuned.eval()}


@pytest.mark.parametrize("weights", ["original", "pruned", "finetuned"])
def test_a_shallower_network_comes_back(made, weights):
    run, expected = made
    network = networks.load(run, weights=weights)
    assert not network.training
    images = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(network(images), expected[weights](images))
    assert len(list_layers(network, SHAPE)) == (22 if weights == "original" else 18)


def test_a_plan_without_dropped_branches_is_whole(made):
    run, _ = made
    assert load_plan(run).dropped == DROPPED
    save_plan(replace(load_plan(run), dropped=()), run.plan)
    assert load_plan(run).dropped == ()
    assert not load_plan(run).reconstructed


@pytest.mark.parametrize("whole", [False, True], ids=["some classes", "all classes"])
def test_the_network_right_after_the_cut_has_the_originals_weights(made, whole):
    run, expected = made
    if whole:  # a plan of a network that knows two classes only
        content = json.loads(run.plan.read_text()) | {"model_classes": 2, "class_indices": [0, 1]}
        content["keeps"]["fc"]["out"] = None
        run.plan.write_text(json.dumps(content))
    run.pruned_weights.write_bytes(run.weights.read_bytes())  # they differ, as after solving layers again
    network = networks.load_cut(run)
    assert not network.training
    images = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(network(images), expected["pruned"](images))


def test_a_plan_of_reconstruction_without_a_predicted_loss_is_read(made):
    run, _ = made
    content = json.loads(run.plan.read_text())
    content["reconstruction"] = {"kl_cut": 1.0, "kl_reconstructed": 0.5, "explained": {"fc": 0.9}, "left": {}}
    run.plan.write_text(json.dumps(content))
    record = load_plan(run).reconstruction
    assert record is not None
    assert record.loss_predicted is None


def test_a_branch_that_the_model_has_not_is_named(made):
    run, _ = made
    save_plan(plan({}, ("layer9.0.conv2",)), run.plan)
    with pytest.raises(ModelError, match=r"layer9\.0\.conv2"):
        networks.load(run)
