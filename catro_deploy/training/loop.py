"""The training loop, for any source of batches, resumable after every epoch.

An epoch that takes longer than ``checkpoint_minutes`` can also be resumed within. On a CPU the result is deterministic:
a resumed training gives the same weights, bit for bit, as an uninterrupted one.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from catro_deploy.errors import CheckpointError, FaultError, NumericsError
from catro_deploy.memory import reused_pages
from catro_deploy.progress import Progress, Task
from catro_deploy.records import Epoch, History, Probe
from catro_deploy.settings import OptimiserSettings
from catro_deploy.training import gentle
from catro_deploy.training.batches import Epochs, seed_of
from catro_deploy.training.compiling import compiled
from catro_deploy.training.compute import Hardware
from catro_deploy.training.ema import MovingAverage
from catro_deploy.training.objective import Objective
from catro_deploy.training.probe import probe_learning_rates
from catro_deploy.training.schedule import learning_rate_factor
from catro_deploy.training.state import Partial, State, read_state, write_state
from catro_deploy.training.stepper import Stepper, seeded
from catro_deploy.training.steps import step_lines
from catro_deploy.training.striding import striding_first
from catro_deploy.training.trainable import frozen_words
from catro_deploy.training.world import ALONE, World
from catro_deploy.units import counted

__all__ = ["Training", "enough_memory"]

# Reading a loss synchronises with the GPU, so many are read at once.
STEPS_BETWEEN_CHECKS = 25


@contextmanager
def enough_memory(remedy: str) -> Iterator[None]:
    """Raise a FaultError with the hint ``remedy`` if the GPU runs out of memory in this block."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise FaultError("The GPU's memory is too small for the training.", remedy) from error


class Training:
    """One training; ``state`` is its last saved state.

    ``validate`` returns a network's accuracy, a fraction, or None if there are no images to measure it on. Several
    processes have the same weights and validate together; the first reads and writes the state. A learning rate or
    moving average that ``settings`` do not specify follows from the number of steps, see ``gentle``.
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
        self.model = model
        self.batches, self.objective, self.validate = batches, objective, validate
        self.settings, self.hardware = settings, hardware
        self.stepper = Stepper(model, objective, settings, hardware)
        whole = settings.epochs * batches.steps
        self.steps = min(whole, settings.steps or whole)
        self.epochs = math.ceil(self.steps / batches.steps)
        self.highest_rate = settings.learning_rate or gentle.learning_rate(self.steps, self.batches.size)
        decay = gentle.ema_decay(self.steps, batches.steps) if settings.ema is None else settings.ema
        self.average = MovingAverage(model, decay) if decay else None

    @property
    def final_network(self) -> nn.Module:
        """The network that is validated and kept: the moving average if there is one, else the model."""
        return self.average.network if self.average else self.model

    def start(self, path: Path | None, fingerprint: str, progress: Progress) -> None:
        """Resume from ``path`` if it exists and belongs to this training, else start from the beginning.

        Raises:
            CheckpointError: ``path`` is damaged.
        """
        if self.steps and (frozen := frozen_words(self.model)):
            progress.note(frozen)
        if saved := self.world.share(read_state(path) if path is not None and path.is_file() else None):
            partial = saved.partial
            if saved.fingerprint == fingerprint and (partial is None or partial.size == self.batches.size):
                own, scaler = self.model.state_dict(), self.stepper.scaler.state_dict()
                if not saved.fits(own, self.stepper.parameters, scaler, averaged=self.average is not None):
                    raise CheckpointError(
                        f"The interrupted training in {path} is damaged: its tensors are not those of the network.",
                        "Delete it to start the training over.",
                    )
                self._restore(saved)
                within = f", step {len(partial.losses)} of the next {self.batches.steps}" if partial else ""
                progress.note(f"resuming after epoch {len(saved.epochs)} of {self.epochs}{within}")
                return
            found = path.name if path is not None else "the saved state"
            progress.note(f"{found} belongs to a training with other settings, images or weights: starting over")
        if self.steps:
            for line in step_lines(self.steps, self.batches.steps, self.batches.size):
                progress.note(line)
        baseline = self._validated(self.model)
        self.state = State(fingerprint, (), baseline, {}, {}, {}, {}, {}, self._probed(progress))

    def _probed(self, progress: Progress) -> Probe | None:
        """Choose the learning rate with a probe, if none is given and the training is long enough."""
        size = gentle.probe_size(self.steps, self.batches.steps)
        if self.settings.learning_rate is not None or size is None:
            return None
        probe = probe_learning_rates(self.stepper, self.batches, self.highest_rate, size, self.world, progress)
        self.highest_rate = probe.chosen
        tried = ", ".join(f"{rate:.2g}" for rate in probe.learning_rates)
        progress.note(
            f"learning rate {probe.chosen:.2g}: chosen from {tried}, tried for {counted(probe.steps, 'step')} each"
        )
        return probe

    def _validated(self, network: nn.Module) -> float | None:
        self.world.align_(network)
        return self.validate(network)

    def _restore(self, saved: State) -> None:
        self.model.load_state_dict(saved.model)
        for name, momentum in saved.momentum.items():
            parameter = self.stepper.parameters[name]
            self.stepper.optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)
        if self.average:
            self.average.network.load_state_dict(saved.ema)
        if saved.scaler:
            self.stepper.scaler.load_state_dict(saved.scaler)
        if saved.probe:
            self.highest_rate = saved.probe.chosen
        self.state = saved

    def run(
        self, path: Path | None, progress: Progress, title: str, record: Callable[[Epoch], None] = lambda epoch: None
    ) -> None:
        """Train the remaining epochs; after each, write the state to ``path`` and call ``record`` with the epoch.

        The state is also written within an epoch when ``checkpoint_minutes`` have passed since the last time.
        With patience, training ends after that many epochs without a better accuracy on the validation images.

        Raises:
            NumericsError: the loss or a weight is not finite; the state of the last good epoch is kept.
            StorageError: the state could not be written.
        """
        epochs, done = self.epochs, len(self.state.epochs)
        steps = progress.task(title, self.steps, self._steps_until(done) + len(self._partial.losses))
        with striding_first(self.model), reused_pages(), steps as task:
            if done < epochs:
                self._prepare_forward(done + 1, progress)
            for epoch in range(done + 1, epochs + 1):
                if self._is_on_a_plateau:
                    progress.note(
                        f"no better validation accuracy for {counted(self.settings.patience, 'epoch')}: stopping early"
                    )
                    break
                began = time.monotonic() - self._partial.seconds
                loss = self._train_epoch(epoch, task, path)
                reached = self._validated(self.final_network)
                rate = self._learning_rate(self._steps_until(epoch) - 1)
                self._save(path, Epoch(epoch, loss, rate, reached, time.monotonic() - began))
                record(self.state.epochs[-1])
                shown = "" if reached is None else f", validation {reached:.2%}"
                task.describe(f"epoch {epoch}/{epochs}, loss {loss:.3f}{shown}")

    def _prepare_forward(self, epoch: int, progress: Progress) -> None:
        """Compile what can be compiled, for batches like those of ``epoch``, and join the other processes."""
        if self.settings.compile and self.objective.features:
            progress.note("not compiled, because feature maps are compared (distill_features)")
        elif self.settings.compile:
            example, _ = next(self.batches.epoch(epoch))
            self.stepper.forward = compiled(self.model, example, self.hardware, progress, self.world)
            self.objective.compile(example, progress)
        self.stepper.join(self.world)

    def _steps_until(self, epoch: int) -> int:
        """The total number of steps up to the end of ``epoch``; the last epoch may be cut short."""
        return min(epoch * self.batches.steps, self.steps)

    @property
    def _is_on_a_plateau(self) -> bool:
        patience = self.settings.patience
        return bool(patience) and self.state.epochs_without_gain >= patience

    @property
    def _partial(self) -> Partial:
        """The finished part of the next epoch."""
        return self.state.partial or Partial((), 0.0, self.batches.size)

    def _train_epoch(self, epoch: int, task: Task, path: Path | None) -> float:
        """Run the remaining steps of an epoch and return the mean loss of all its steps."""
        start = self._steps_until(epoch - 1)
        count = self._steps_until(epoch) - start
        done = self._partial
        losses = list(torch.tensor(done.losses, device=self.hardware.device).unbind())
        stream = 2 + self.world.rank
        saved = time.monotonic()
        began = saved - done.seconds
        self.stepper.train()
        with seeded(seed_of(self.settings.seed, epoch, stream), self.hardware):
            batches = islice(self.batches.epoch(epoch, len(losses)), count - len(losses))
            for place, (images, labels) in enumerate(batches, start=len(losses)):
                torch.manual_seed(seed_of(self.settings.seed, epoch, stream, place))
                losses.append(self._train_step(start + place, images, labels))
                if len(losses) % STEPS_BETWEEN_CHECKS == 0:
                    self._require_finite(epoch, losses)
                if len(losses) < count and self._is_due(path, saved, len(losses)):
                    self._save_partial(path, epoch, losses, time.monotonic() - began)
                    saved = time.monotonic()
                task.advance()
        self._require_finite(epoch, losses, weights=True)
        return float(self.world.mean(torch.stack(losses)).mean())

    def _is_due(self, path: Path | None, saved: float, steps: int) -> bool:
        """Whether all processes save now; several processes agree on it only once in many steps."""
        if self.world.size > 1 and steps % STEPS_BETWEEN_CHECKS:
            return False
        minutes = (time.monotonic() - saved) / 60
        return self.world.share(path is not None and minutes >= self.settings.checkpoint_minutes)

    def _train_step(self, step: int, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = self.stepper.step(images, labels, self._learning_rate(step))
        if self.average:
            self.average.update(step)
        return loss

    def _learning_rate(self, step: int) -> float:
        # A short training must not end before its warm-up does.
        warmup = min(round((self.settings.warmup_epochs or 0.0) * self.batches.steps), self.steps // 2)
        return self.highest_rate * learning_rate_factor(self.settings.schedule, step, self.steps, warmup)

    def _require_finite(self, epoch: int, losses: list[torch.Tensor], weights: bool = False) -> None:
        """Check the losses since the last check, and the weights if they will be kept."""
        since = (len(losses) - 1) // STEPS_BETWEEN_CHECKS * STEPS_BETWEEN_CHECKS
        finite = torch.isfinite(self.world.mean(torch.stack(losses[since:]))).tolist()
        if not all(finite):
            raise self._diverged("the loss", epoch, since + finite.index(False) + 1)
        parameters = self.stepper.parameters.values()
        if weights and not all(torch.isfinite(p).all() for p in parameters):
            raise self._diverged("a weight", epoch, len(losses))

    def _diverged(self, what: str, epoch: int, step: int) -> NumericsError:
        rate = self._learning_rate((epoch - 1) * self.batches.steps + step - 1)
        return NumericsError(
            f"Training diverged: {what} is not finite in epoch {epoch}, step {step} of {self.batches.steps}, "
            f"at learning rate {rate:.3g}.",
            f"Lower learning_rate, for instance to a tenth of {self.highest_rate:g}, and run again.",
        )

    def _save_partial(self, path: Path | None, epoch: int, losses: list[torch.Tensor], seconds: float) -> None:
        self._require_finite(epoch, losses, weights=True)
        means = self.world.mean(torch.stack(losses)).tolist()
        self._write(path, replace(self.state, partial=Partial(tuple(means), seconds, self.batches.size)))

    def _save(self, path: Path | None, epoch: Epoch) -> None:
        epochs = (*self.state.epochs, epoch)
        best = self.state.best
        if self.settings.patience and replace(self.state, epochs=epochs).best_epoch is epoch:
            best = {name: tensor.clone() for name, tensor in self.final_network.state_dict().items()}
        self._write(path, replace(self.state, epochs=epochs, best=best, partial=None))

    def _write(self, path: Path | None, reached: State) -> None:
        """Store ``reached``, with the current weights and buffers, as the state."""
        state = self.stepper.optimizer.state
        buffers = {name: state[p].get("momentum_buffer") for name, p in self.stepper.parameters.items()}
        self.state = replace(
            reached,
            model=self.model.state_dict(),
            momentum={name: buffer for name, buffer in buffers.items() if buffer is not None},
            ema=self.average.network.state_dict() if self.average else {},
            scaler=self.stepper.scaler.state_dict(),
        )
        if path is not None and self.world.is_first:
            write_state(path, self.state)

    def finish(self, images: int) -> History:
        """Load the final weights into the model and return the history."""
        epochs, baseline = self.state.epochs, self.state.baseline
        last = self.state.best_epoch if self.state.best else epochs[-1] if epochs else None
        if self.state.best or self.average:
            self.model.load_state_dict(self.state.best or self.final_network.state_dict())
        self.model.zero_grad(set_to_none=True)
        Hardware(torch.device("cpu"), None, torch.contiguous_format).place(self.model).eval()
        return History(
            epochs=epochs,
            validation_accuracy=last.validation_accuracy if last else baseline,
            baseline_validation_accuracy=baseline,
            seconds=sum(epoch.seconds for epoch in epochs),
            device=self.hardware.device.type,
            images=images,
            processes=self.world.size,
            probe=self.state.probe,
        )
