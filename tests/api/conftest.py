import copy

import pytest
import torch

import catro_deploy
from tests.api.test_prune import MEAN, QUICK, STD, loader
from tests.stages.test_prune import SHAPE, lively
from tests.tiny import CLASSES


@pytest.fixture(scope="module")
def made():
    return catro_deploy.prune(lively(), loader(), classes=[0, 2], class_names=CLASSES, mean=MEAN, std=STD, **QUICK)


@pytest.fixture
def pruned(made):
    return copy.deepcopy(made)


@pytest.fixture
def images():
    return torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
