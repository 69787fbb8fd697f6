"""A checkpoint and short protocols, for stages that time candidates on this machine."""

import pytest
import torch

from catro_deploy.files import write_text
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.pruning import finding
from tests.tiny import PROFILE_PROTOCOL, Blocks

TRIAL = """\
warmup_s = 0.05
seconds = 0.4
min_samples = 100
limit_s = 5.0
block = 5
bootstrap_resamples = 50
seed = 0
"""


def lively() -> Blocks:
    """Blocks with non-trivial normalisation layers, so that a wrongly cut channel shows in the outputs."""
    torch.manual_seed(0)
    network = Blocks(3).eval()
    for norm in (network.bn, network.one_bn, network.two_bn):
        for tensor, low, high in ((norm.weight, 0.5, 1.5), (norm.bias, -0.5, 0.5), (norm.running_mean, -0.3, 0.3)):
            torch.nn.init.uniform_(tensor.data, low, high)
    return network


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with blocks.safetensors and two protocols: few.toml for profiles, trial.toml for latencies."""
    folder = tmp_path_factory.mktemp("blocks")
    save_weights(lively(), folder / "blocks.safetensors")
    write_text(folder / "few.toml", PROFILE_PROTOCOL)
    write_text(folder / "trial.toml", TRIAL)
    return folder


@pytest.fixture
def short_trials(folder, monkeypatch):
    """Candidates are timed for less than a second."""
    monkeypatch.setattr(finding, "CANDIDATES", str(folder / "trial.toml"))
