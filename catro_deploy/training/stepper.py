"""Training steps of a network with its optimiser, on its hardware."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from catro_deploy.settings import LARGEST_BATCH, OptimiserSettings
from catro_deploy.training.compute import Hardware
from catro_deploy.training.objective import Objective
from catro_deploy.training.world import World

__all__ = ["Stepper", "seeded"]


@contextmanager
def seeded(seed: int, hardware: Hardware) -> Iterator[None]:
    """Seed dropout and the like with ``seed`` in this block; the global generators are restored afterwards."""
    gpus = [torch.cuda.current_device()] if hardware.device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield


class Stepper:
    """Nesterov SGD on ``model``, without weight decay on biases and batch norm (all one-dimensional parameters).

    Steps call ``forward``: the model, or a wrapper of it (compiled or distributed).
    """

    def __init__(self, model: nn.Module, objective: Objective, settings: OptimiserSettings, hardware: Hardware) -> None:
        self.model = hardware.place(model)
        self.objective, self.settings, self.hardware = objective, settings, hardware
        self.forward: Callable[[torch.Tensor], torch.Tensor] = model
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimizer = _nesterov_sgd(list(self.parameters.values()), settings, hardware)
        self.scaler = torch.amp.GradScaler(hardware.device.type, enabled=hardware.scales_loss)

    def copy(self) -> "Stepper":
        """A stepper with a copy of the current model; its optimiser has no momentum yet."""
        return Stepper(copy.deepcopy(self.model), self.objective, self.settings, self.hardware)

    def join(self, world: World) -> None:
        """Average gradients over the processes of ``world`` from now on."""
        if world.size > 1:
            network = self.forward if isinstance(self.forward, nn.Module) else self.model
            self.forward = nn.parallel.DistributedDataParallel(network)

    def train(self) -> None:
        """Put the model into training mode; see ``keeps_statistics`` for its batch norms."""
        self.model.train()
        if self.keeps_statistics:
            for module in self.model.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()

    @property
    def keeps_statistics(self) -> bool:
        """Whether batch norms keep their statistics: with small batches, if the statistics are accurate.

        The statistics of batches of 16 images alone, at a learning rate of 0, cost a reconstructed ResNet-20 1.4 points
        of accuracy (83.4% on CIFAR-10, 360 training images, 44 steps).
        """
        return self.settings.starts_accurate and (self.settings.batch_size or LARGEST_BATCH) < LARGEST_BATCH

    def step(self, images: torch.Tensor, labels: torch.Tensor, learning_rate: float) -> torch.Tensor:
        """Take a step on a batch, ``images`` (n, c, h, w) and ``labels`` (n,); return its loss, a scalar."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        with self.hardware.autocast(), self.objective.watching(self.model) as maps:
            logits = self.forward(images)
        loss = self.objective(logits.float(), images, labels, maps)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.settings.max_grad_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    @torch.no_grad()
    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of a batch without a step, a scalar; the model stays in its mode."""
        with self.hardware.autocast(), self.objective.watching(self.model) as maps:
            logits = self.model(images)
        return self.objective(logits.float(), images, labels, maps)


def _nesterov_sgd(
    parameters: Sequence[nn.Parameter], settings: OptimiserSettings, hardware: Hardware
) -> torch.optim.SGD:
    decayed = [p for p in parameters if p.ndim > 1]
    free = [p for p in parameters if p.ndim <= 1]
    optimizer = torch.optim.SGD(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}],
        lr=0.0,  # each step sets its own
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        # Fused SGD leaves its momentum uninitialised if the scaler skips the first step, as it often does.
        fused=not hardware.scales_loss,
    )
    if settings.momentum > 0:  # fused SGD fails if a parameter has its first gradient later than others
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer
