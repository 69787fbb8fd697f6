"""Networks with residual branches, and their logits without some of the branches."""

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.depth import drop_branches, find_branches
from catro_deploy.models import build_model
from catro_deploy.records import Branch


class Written(nn.Module):
    """Additions written in all ways, in-place activations, and an early map that is read again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        for block in range(4):
            self.add_module(f"inner{block}", nn.Conv2d(4, 3 + block, 3, padding=1))
            self.add_module(f"norm{block}", nn.BatchNorm2d(3 + block))
            self.add_module(f"outer{block}", nn.Conv2d(3 + block, 4, 3, padding=1))
        self.swish = nn.Hardswish(inplace=True)
        self.drop_rate = 0.5
        self.fc = nn.Linear(4, 3)

    def branch(self, block: int, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.get_submodule(f"norm{block}")(self.get_submodule(f"inner{block}")(x)), inplace=True)
        return self.get_submodule(f"outer{block}")(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = self.stem(x)
        x = self.swish(torch.add(stem, self.branch(0, stem)))
        out = self.branch(1, x)
        out += x
        x = functional.dropout(out, self.drop_rate, self.training)
        x = x.add(self.branch(2, x))
        x = torch.relu(torch.relu(self.branch(3, x).add_(x)) + stem)
        return self.fc(x.mean((2, 3)))


def lively(name: str, seed: int = 0) -> nn.Module:
    """The network ``name`` with random weights and normalisations that are not the identity, in eval mode."""
    torch.manual_seed(seed)
    model = build_model(name, 5)
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        for tensor, low, high in (
            (norm.weight, 0.5, 1.5),
            (norm.bias, -0.5, 0.5),
            (norm.running_mean, -0.3, 0.3),
            (norm.running_var, 0.5, 1.5),
        ):
            nn.init.uniform_(tensor.data, low, high)
    return model


def found(model: nn.Module, size: int = 8) -> tuple[Branch, ...]:
    return find_branches(model, trace(model, (3, size, size)))


def muted(model: nn.Module, branches: Sequence[Branch]) -> nn.Module:
    """A copy at full depth whose ``branches`` output zeros."""
    copied = copy.deepcopy(model)
    for branch in branches:
        copied.get_submodule(branch.modules[-1]).register_forward_hook(lambda *call: torch.zeros_like(call[2]))
    return copied


def images(size: int = 8, count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def assert_same(model: nn.Module, branches: Sequence[Branch], size: int) -> nn.Module:
    """Drop ``branches`` and compare with the reference; return the network without them."""
    dropped = drop_branches(model, [branch.name for branch in branches])
    with torch.inference_mode():
        expected, result = muted(model, branches)(images(size)), dropped(images(size))
    assert (expected - result).abs().max() <= 1e-6 * expected.abs().max()
    gone = {f"{module}." for branch in branches for module in branch.modules}
    left = {key for key in model.state_dict() if not f"{key}.".startswith(tuple(gone))}
    assert set(dropped.state_dict()) == left
    return dropped
