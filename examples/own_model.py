"""A custom network and custom images, pruned in Python; the factories below also serve the command line.

python examples/own_model.py
catro-deploy run --config examples/own_model.toml
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import catro_deploy
from catro_deploy.data import Dataset, MemorySplit
from catro_deploy.settings import DataSettings

CLASSES = ("across", "down", "rising", "falling")


class Net(nn.Module):
    """A residual branch parallel to a plain one, joined by a concatenation."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.plain = nn.Sequential(nn.Conv2d(32, 48, 3, padding=1, bias=False), nn.BatchNorm2d(48), nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2d(32, 48, 1), nn.ReLU(inplace=True), nn.Conv2d(48, 32, 3, padding=1))
        self.head = nn.Linear(48 + 32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (n, 3, 16, 16) to logits (n, classes)."""
        x = self.stem(x)
        x = torch.cat([self.plain(x), torch.relu(x + self.branch(x))], dim=1)
        return self.head(x.mean((2, 3)))


def build(classes: int) -> nn.Module:
    """The factory of the network: ``examples.own_model:build``."""
    return Net(classes)


def draw(per_class: int, seed: int) -> MemorySplit:
    """Noisy stripes in four directions: uint8 images (n, 3, 16, 16) and labels (n,), shuffled."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(4), per_class))
    y, x = np.mgrid[:16, :16]
    stripes = np.stack([y, x, x + y, x - y])[labels] + generator.integers(0, 6, (len(labels), 1, 1))
    pixels = 128 + 50 * np.where(stripes % 6 < 3, 1, -1)[:, None] + generator.normal(0, 60, (len(labels), 3, 16, 16))
    return MemorySplit(torch.from_numpy(pixels.clip(0, 255).astype(np.uint8)), labels)


def images(settings: DataSettings, size: tuple[int, int], channels: int) -> Dataset:
    """The factory of the images: ``examples.own_model:images``."""
    return Dataset("stripes", CLASSES, {"straight": (0, 1)}, draw(200, 0), draw(50, 1), draw(50, 2))


def loader(split: MemorySplit) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Batches of normalised images and labels, as in any training loop."""
    dataset = TensorDataset((split.pixels / 255 - 0.5) / 0.25, torch.from_numpy(split.labels))
    return DataLoader(dataset, batch_size=64, shuffle=True)


def train(model: nn.Module, batches: DataLoader[tuple[torch.Tensor, ...]], epochs: int = 5) -> None:
    """A minimal training loop."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for inputs, labels in batches:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()


def main() -> None:
    """Train, prune to 30% of the multiply-accumulates for two of the classes, fine-tune, export, save and load."""
    torch.manual_seed(0)
    model, batches, held_out = build(4), loader(draw(200, 0)), loader(draw(50, 1))
    train(model, batches)
    pruned = catro_deploy.prune(model, batches, budget="30%flops", classes=["across", "down"], class_names=CLASSES)
    history = pruned.finetune(batches, validation=held_out, epochs=3)
    share = pruned.plan.pruned_macs / pruned.plan.original_macs
    print(f"{share:.1%} of the multiply-accumulates, accuracy {history.validation_accuracy:.1%} on held-out images")
    pruned.export("own_model.onnx")
    pruned.save("own_model")
    print(catro_deploy.load("own_model", model=build))


if __name__ == "__main__":
    main()
