"""Small networks that cover every kind of coupling, and random weights and statistics for them."""

import copy
import random

import torch
from torch import nn
from torch.nn import functional

from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.cut.surgery import apply_keeps_, keeps_of, masked


class Residual(nn.Module):
    """A stem, two residual blocks, one of them with a projection, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(6)
        self.inner = nn.Conv2d(6, 5, 3, padding=1)
        self.inner_bn = nn.BatchNorm2d(5)
        self.outer = nn.Conv2d(5, 6, 3, padding=1)
        self.down = nn.Conv2d(6, 8, 1, stride=2)
        self.wide = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        x = torch.relu(x + self.outer(torch.relu(self.inner_bn(self.inner(x)))))
        x = torch.relu(self.down(x) + self.wide(x))
        return self.fc(x.mean((2, 3)))


class Branches(nn.Module):
    """Concatenation with offsets, a depthwise layer, squeeze and excitation, PReLU, and a flattened map."""

    gated = 6

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3, padding=1)
        self.right = nn.Conv2d(3, 6, 3, padding=1)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.act = nn.PReLU(6)
        self.norm = nn.BatchNorm2d(10)
        self.squeeze = nn.Conv2d(self.gated, 4, 1)
        self.excite = nn.Conv2d(4, self.gated, 1)
        self.last = nn.Conv2d(10, 5, 3, stride=2, padding=1)
        self.fc = nn.Linear(5 * 4 * 4, 3)

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.excite(functional.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        right = self.gate(self.act(self.depthwise(self.right(x))))
        x = functional.relu(self.norm(torch.cat([functional.relu(self.left(x)), right], 1)))
        return self.fc(torch.flatten(functional.relu(self.last(x)), 1))


class GatedConcat(Branches):
    """The gate multiplies the whole concatenation, so it is coupled with both branches."""

    gated = 10

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([functional.relu(self.left(x)), self.act(self.depthwise(self.right(x)))], 1)
        x = self.gate(functional.relu(self.norm(x)))
        return self.fc(torch.flatten(functional.relu(self.last(x)), 1))


class Grouped(nn.Module):
    """A grouped convolution between two plain ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.second = nn.Conv2d(8, 6, 3, padding=1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(torch.relu(self.grouped(torch.relu(self.first(x)))))
        return self.fc(torch.relu(x).mean((2, 3)))


def randomised(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give ``model`` random weights and normalisation statistics; return it in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.normal_(generator=generator)
                if name.endswith("running_var"):
                    value.abs_().add_(0.5)
    return model.eval()


def assert_cut_is_masked(model: nn.Module, network: Network, seed: int) -> None:
    """Cut by a random plan, ``model``, traced as ``network``, computes the same as the masked model."""
    pick = random.Random(seed)
    kept = {
        g.name: sorted(pick.sample(range(g.width), pick.randint(1, g.width))) for g in network.groups if not g.fixed
    }
    keeps = keeps_of(network.groups, kept, network.sizes)
    images = torch.randn(2, *network.input_shape, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        expected, found = masked(model, keeps)(images), apply_keeps_(copy.deepcopy(model), keeps)(images)
    assert (expected - found).abs().max() <= 1e-5 * expected.abs().max().clamp(min=1e-6)
