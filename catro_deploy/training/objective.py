"""The loss of a training."""

import copy
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.fx.folding import folded
from catro_deploy.progress import Progress
from catro_deploy.training.compiling import Forward, compiled_teacher
from catro_deploy.training.compute import Hardware, can_run
from catro_deploy.training.features import Features, Maps, inputs_of

__all__ = ["Objective", "distillation_loss"]


def distillation_loss(logits: torch.Tensor, teacher_logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """T^2 times the mean over images of KL(teacher || student), both softened by ``temperature`` T.

    Both logits have the shape (n, classes). T^2 keeps the scale of gradients, as in Hinton, Vinyals and Dean (2015),
    "Distilling the Knowledge in a Neural Network".
    """
    student = F.log_softmax(logits / temperature, dim=1)
    teacher = F.log_softmax(teacher_logits / temperature, dim=1)
    return temperature**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True)


class Objective:
    """(1 - distill) * cross entropy + distill * ``distillation_loss`` + ``features.loss``, from a copy of ``teacher``.

    Feature maps are collected by ``watching`` the trained network.
    """

    def __init__(
        self,
        hardware: Hardware,
        label_smoothing: float = 0.0,
        teacher: nn.Module | None = None,
        distill: float = 0.0,
        temperature: float = 4.0,
        features: Features | None = None,
    ) -> None:
        self._hardware = hardware
        self._label_smoothing = label_smoothing
        self._distill = distill
        self._temperature = temperature
        self.features = (features or Features()).to(hardware.device)
        used = distill > 0 or bool(self.features)
        self._teacher = _placed(teacher, hardware) if teacher is not None and used else None
        self._teacher_forward: Forward | None = self._teacher
        self._memory_format: torch.memory_format | None = None

    def compile(self, images: torch.Tensor, progress: Progress) -> None:
        """Compile the teacher for batches like ``images`` (n, c, h, w), if that is faster.

        Not for a training with ``features``, which a compiled network does not give.
        """
        if self._teacher is not None:
            images = self._laid_out(self._teacher, images)
            self._teacher_forward = compiled_teacher(self._teacher, images, self._hardware, progress)

    def watching(self, model: nn.Module) -> AbstractContextManager[Maps]:
        """Collect the feature maps of ``model`` that are compared with the teacher's, in this block."""
        return inputs_of(model, self.features.layers)

    def __call__(
        self, logits: torch.Tensor, images: torch.Tensor, labels: torch.Tensor, maps: Maps | None = None
    ) -> torch.Tensor:
        """The loss of one batch, a scalar: ``logits`` (n, classes) and ``maps`` of ``images`` (n, c, h, w).

        ``labels`` are (n,) or, for mixed images, shares of classes (n, up to classes); classes missing at the end have
        a share of 0.
        """
        if labels.ndim > 1:
            labels = F.pad(labels, (0, logits.shape[1] - labels.shape[1]))
        if self._teacher_forward is None or self._teacher is None:
            return F.cross_entropy(logits, labels, label_smoothing=self._label_smoothing)
        with torch.no_grad(), self._hardware.autocast(), self.watching(self._teacher) as original_maps:
            teacher_logits = self._teacher_forward(self._laid_out(self._teacher, images)).float()
        loss = self._distill * distillation_loss(logits, teacher_logits, self._temperature)
        if self.features:
            loss = loss + self.features.loss(maps or {}, original_maps)
        if self._distill == 1:  # labels need not be known
            return loss
        labelled = F.cross_entropy(logits, labels, label_smoothing=self._label_smoothing)
        return loss + (1 - self._distill) * labelled

    def _laid_out(self, teacher: nn.Module, images: torch.Tensor) -> torch.Tensor:
        """``images`` in the layout in which ``teacher`` is fast, which the first images determine."""
        if self._memory_format is None:
            # Unlike those of a pruned network, its widths fill vector registers: this layout halves the time.
            _, channels, height, width = images.shape
            channels_last = replace(self._hardware, memory_format=torch.channels_last)
            fits = can_run(teacher, channels_last, (channels, height, width))
            self._memory_format = torch.channels_last if fits else torch.contiguous_format
            teacher.to(memory_format=self._memory_format)
        return images.contiguous(memory_format=self._memory_format)


def _placed(teacher: nn.Module, hardware: Hardware) -> nn.Module:
    try:
        copied: nn.Module = folded(teacher)  # runs in two thirds of the time
    except ModelError:  # a teacher need not have a graph
        copied = copy.deepcopy(teacher).eval()
    return hardware.place(copied)
