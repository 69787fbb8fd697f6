"""The API computes the same in each of PyTorch's modes, and leaves the caller's mode as it was."""

import copy
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import pytest
import torch

import catro_deploy
from tests.api.test_prune import QUICK, loader
from tests.api.test_pruned import TRAINING, same
from tests.stages.test_prune import SHAPE, lively
from tests.tiny import TinyNet
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too

MODES = {
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
}


def modes():
    return torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@pytest.fixture
def expected():
    return catro_deploy.prune(lively(), loader(), **QUICK)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_network_is_pruned_and_fine_tuned_the_same_in_each_mode(expected, mode):
    model, trained = lively(), copy.deepcopy(expected)
    history = trained.finetune(loader(), validation=loader("validation"), **TRAINING)
    with mode():
        before = modes()
        pruned = catro_deploy.prune(model, loader(), **QUICK)
        assert pruned.plan == expected.plan
        assert same(pruned.model, expected.model)
        found = pruned.finetune(list(loader()), validation=loader("validation"), **TRAINING)
        assert [epoch.loss for epoch in found.epochs] == [epoch.loss for epoch in history.epochs]
        assert modes() == before
    assert same(pruned.model, trained.model)
    assert not any(tensor.is_inference() for tensor in pruned.model.state_dict().values())


def test_a_network_made_in_inference_mode_is_pruned_and_fine_tuned():
    with torch.inference_mode():
        pruned = catro_deploy.prune(lively(), list(loader()), **QUICK)
    assert len(pruned.finetune(loader(), **TRAINING).epochs) == TRAINING["epochs"]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_agreement_files_and_saved_networks_are_the_same_in_each_mode(expected, tmp_path, mode):
    agreement = expected.agreement(loader("test"))
    file = expected.export(tmp_path / "expected.onnx").read_bytes()
    with mode():
        assert expected.agreement(loader("test")) == agreement
        assert expected.export(tmp_path / "found.onnx").read_bytes() == file
        network = catro_deploy.load(expected.save(tmp_path / "saved"), model=TinyNet)
    assert same(network, expected.model)
    network(torch.zeros(2, *SHAPE)).sum().backward()


@pytest.mark.parametrize("fails", [False, True])
def test_a_network_that_the_caller_trains_stays_in_its_modes(expected, tmp_path, fails):
    pruned = copy.deepcopy(expected)
    pruned.model.train().bn1.eval()  # a frozen batch norm
    before = [module.training for module in pruned.model.modules()]
    weight = pruned.model.conv1.weight
    with pytest.raises(catro_deploy.errors.CatroError) if fails else nullcontext():
        pruned.agreement(loader("test") if not fails else [torch.zeros(2, 3, 5, 5)])
    with pytest.raises(catro_deploy.errors.CatroError) if fails else nullcontext():
        pruned.export(tmp_path / ("a.onnx" if not fails else ""))
    assert [module.training for module in pruned.model.modules()] == before
    assert pruned.model.conv1.weight is weight


def test_an_error_leaves_the_mode_as_it_was(expected):
    with torch.inference_mode(), pytest.raises(catro_deploy.errors.DataError):
        expected.agreement([])
    with torch.no_grad():
        with pytest.raises(catro_deploy.errors.DataError):
            expected.agreement([])
        assert not torch.is_grad_enabled()


def test_threads_prune_one_after_the_other(expected):
    models = [lively() for _ in range(3)]  # not later: a loader in a thread draws from the generator that lively seeds
    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(catro_deploy.prune, model, loader(), **QUICK) for model in models]
        assert all(same(run.result().model, expected.model) for run in runs)
    assert same(catro_deploy.prune(lively(), loader(), **QUICK).model, expected.model)
