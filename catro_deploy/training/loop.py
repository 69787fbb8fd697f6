"""The training loop: from starting weights to final ones, wherever the batches come from, resumable after every epoch.

Nesterov SGD without weight decay on biases and batch norm (everything of one dimension). On a CPU the outcome follows
from the arguments alone: a training that was interrupted and goes on ends with the same bits as an unbroken one.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from catro_deploy.errors import FaultError, NumericsError
from catro_deploy.memory import reused_pages
from catro_deploy.progress import Progress, Task
from catro_deploy.settings import OptimiserSettings
from catro_deploy.training.batches import Epochs, seed_of
from catro_deploy.training.compiling import compiled
from catro_deploy.training.device import Hardware
from catro_deploy.training.ema import MovingAverage
from catro_deploy.training.history import Epoch, History
from catro_deploy.training.objective import Objective
from catro_deploy.training.schedule import learning_rate_factor
from catro_deploy.training.state import State, read_state, write_state
from catro_deploy.training.striding import striding_first
from catro_deploy.training.world import ALONE, World

__all__ = ["Training", "enough_memory"]

# To look at a loss makes a GPU wait; to look at many at once hardly does.
STEPS_BETWEEN_CHECKS = 25


@contextmanager
def enough_memory(remedy: str) -> Iterator[None]:
    """Turn a GPU that runs out of memory in this block into a FaultError with the hint ``remedy``."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise FaultError("The GPU's memory is too small for the training.", remedy) from error


class Training:
    """One training; ``state`` is where it stands after its last whole epoch.

    ``validate`` gives a network's accuracy, a fraction, or None if there are no images for that. Of several processes
    the first validates, and reads and writes the state; all have the same weights.
    """

    state: State

    def __init__(
        self,
        model: nn.Module,
        batches: Epochs,
        objective: Objective,
        validate: Callable[[nn.Module], float | None],
        settings: OptimiserSettings,
        hardware: Hardware,
        world: World = ALONE,
    ) -> None:
        self.world = world
        self.model = hardware.place(model)
        self.batches, self.objective, self.validate = batches, objective, validate
        self.settings, self.hardware = settings, hardware
        self.forward: Callable[[torch.Tensor], torch.Tensor] = model
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimizer = _nesterov_sgd(list(self.parameters.values()), settings, hardware)
        self.scaler = torch.amp.GradScaler(hardware.device.type, enabled=hardware.scales_loss)
        self.average = MovingAverage(model, settings.ema) if settings.ema else None

    @property
    def final_network(self) -> nn.Module:
        """The network whose accuracy counts."""
        return self.average.network if self.average else self.model

    def start(self, path: Path | None, fingerprint: str, progress: Progress) -> None:
        """Go on from ``path`` if it is there and belongs to this training, else begin.

        Raises:
            CheckpointError: ``path`` is damaged.
        """
        if saved := self.world.share(read_state(path) if path is not None and path.is_file() else None):
            if saved.fingerprint == fingerprint:
                self._restore(saved)
                progress.note(f"going on from epoch {len(saved.epochs)} of {self.settings.epochs}")
                return
            found = path.name if path is not None else "what is left"
            progress.note(f"{found} is of a training with other settings, images or weights: starting anew")
        self.state = State(fingerprint, (), self._validated(self.model), {}, {}, {}, {}, {})

    def _validated(self, network: nn.Module) -> float | None:
        return self.world.share(self.validate(network) if self.world.is_first else None)

    def _restore(self, saved: State) -> None:
        self.model.load_state_dict(saved.model)
        for name, momentum in saved.momentum.items():
            parameter = self.parameters[name]
            self.optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)
        if self.average:
            self.average.network.load_state_dict(saved.ema)
        if saved.scaler:
            self.scaler.load_state_dict(saved.scaler)
        self.state = saved

    def run(
        self, path: Path | None, progress: Progress, title: str, record: Callable[[Epoch], None] = lambda epoch: None
    ) -> None:
        """Train the epochs that are left, writing the state to ``path`` after each; ``record`` is told of it.

        With patience it ends once so many epochs in a row were no better on the validation images.

        Raises:
            NumericsError: the loss or a weight is not finite; the state of the last good epoch stays.
            StorageError: the state could not be written.
        """
        steps, epochs, done = self.batches.steps, self.settings.epochs, len(self.state.epochs)
        with striding_first(self.model), reused_pages(), progress.task(title, epochs * steps, done * steps) as task:
            if done < epochs:
                self._prepare_forward(done + 1, progress)
            for epoch in range(done + 1, epochs + 1):
                if self._is_on_a_plateau:
                    progress.note(f"no better on validation images for {self.settings.patience} epochs: ended early")
                    break
                began = time.monotonic()
                loss = self._train_epoch(epoch, task)
                reached = self._validated(self.final_network)
                rate = self._learning_rate(epoch * steps - 1)
                self._save(path, Epoch(epoch, loss, rate, reached, time.monotonic() - began))
                record(self.state.epochs[-1])
                shown = "" if reached is None else f", validation {reached:.2%}"
                task.describe(f"epoch {epoch}/{epochs}, loss {loss:.3f}{shown}")

    def _prepare_forward(self, epoch: int, progress: Progress) -> None:
        """Compile what can be, for batches as those of ``epoch``, and take part with the other processes."""
        if self.settings.compile:
            example, _ = next(self.batches.epoch(epoch))
            self.forward = compiled(self.model, example, self.hardware, progress)
            self.objective.compile(example, progress)
        if self.world.size > 1:
            network = self.forward if isinstance(self.forward, nn.Module) else self.model
            self.forward = nn.parallel.DistributedDataParallel(network)

    @property
    def _is_on_a_plateau(self) -> bool:
        best = self.state.best_epoch
        patience = self.settings.patience
        return bool(patience) and best is not None and len(self.state.epochs) - best.epoch >= patience

    def _train_epoch(self, epoch: int, task: Task) -> float:
        """Run every step of an epoch and return the mean loss."""
        first = (epoch - 1) * self.batches.steps
        losses: list[torch.Tensor] = []
        self.model.train()
        gpus = [torch.cuda.current_device()] if self.hardware.device.type == "cuda" else []
        # Dropout and the like draw from the global generators; these are the caller's again afterwards.
        with torch.random.fork_rng(devices=gpus):
            torch.manual_seed(seed_of(self.settings.seed, epoch, 2 + self.world.rank))
            for step, (images, labels) in enumerate(self.batches.epoch(epoch), start=first):
                losses.append(self._train_step(step, images, labels))
                if len(losses) % STEPS_BETWEEN_CHECKS == 0:
                    self._require_finite(epoch, losses)
                task.advance()
        self._require_finite(epoch, losses)
        return float(self.world.mean(torch.stack(losses)).mean())

    def _train_step(self, step: int, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(step)
        with self.hardware.autocast():
            logits = self.forward(images)
        loss = self.objective(logits.float(), images, labels)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average:
            self.average.update(step)
        return loss.detach()

    def _learning_rate(self, step: int) -> float:
        settings, total = self.settings, self.settings.epochs * self.batches.steps
        # A short training must not end before its warm-up does.
        warmup = min(round(settings.warmup_epochs * self.batches.steps), total // 2)
        return settings.learning_rate * learning_rate_factor(settings.schedule, step, total, warmup)

    def _require_finite(self, epoch: int, losses: list[torch.Tensor]) -> None:
        """Check the losses since the last check, and at the end of the epoch what they made of the weights."""
        since = (len(losses) - 1) // STEPS_BETWEEN_CHECKS * STEPS_BETWEEN_CHECKS
        finite = torch.isfinite(self.world.mean(torch.stack(losses[since:]))).tolist()
        if not all(finite):
            raise self._diverged("the loss", epoch, since + finite.index(False) + 1)
        if len(losses) == self.batches.steps and not all(torch.isfinite(p).all() for p in self.parameters.values()):
            raise self._diverged("a weight", epoch, len(losses))

    def _diverged(self, what: str, epoch: int, step: int) -> NumericsError:
        rate = self._learning_rate((epoch - 1) * self.batches.steps + step - 1)
        return NumericsError(
            f"Training diverged: {what} is not finite in epoch {epoch}, step {step} of {self.batches.steps}, "
            f"at learning rate {rate:.3g}.",
            f"Lower learning_rate (now {self.settings.learning_rate:g}), for instance to a tenth, and run again.",
        )

    def _save(self, path: Path | None, epoch: Epoch) -> None:
        buffers = {name: self.optimizer.state[p].get("momentum_buffer") for name, p in self.parameters.items()}
        epochs = (*self.state.epochs, epoch)
        best = self.state.best
        if self.settings.patience and replace(self.state, epochs=epochs).best_epoch is epoch:
            best = {name: tensor.clone() for name, tensor in self.final_network.state_dict().items()}
        self.state = State(
            fingerprint=self.state.fingerprint,
            epochs=epochs,
            best=best,
            baseline=self.state.baseline,
            model=self.model.state_dict(),
            momentum={name: buffer for name, buffer in buffers.items() if buffer is not None},
            ema=self.average.network.state_dict() if self.average else {},
            scaler=self.scaler.state_dict(),
        )
        if path is not None and self.world.is_first:
            write_state(path, self.state)

    def finish(self, images: int) -> History:
        """Leave the final weights in the model and say how it went."""
        epochs = self.state.epochs
        last = self.state.best_epoch if self.state.best else epochs[-1]
        if self.state.best or self.average:
            self.model.load_state_dict(self.state.best or self.final_network.state_dict())
        self.model.zero_grad(set_to_none=True)
        Hardware(torch.device("cpu"), None, torch.contiguous_format).place(self.model).eval()
        return History(
            epochs=epochs,
            validation_accuracy=last.validation_accuracy if last else None,
            baseline_validation_accuracy=self.state.baseline,
            seconds=sum(epoch.seconds for epoch in epochs),
            device=self.hardware.device.type,
            images=images,
            processes=self.world.size,
        )


def _nesterov_sgd(
    parameters: Sequence[nn.Parameter], settings: OptimiserSettings, hardware: Hardware
) -> torch.optim.SGD:
    decayed = [p for p in parameters if p.ndim > 1]
    free = [p for p in parameters if p.ndim <= 1]
    return torch.optim.SGD(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}],
        lr=settings.learning_rate,
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        # The fused form leaves its momentum uninitialised where the scaler skips the first step, as it often does.
        fused=not hardware.scales_loss,
    )
