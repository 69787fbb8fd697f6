"""Accuracy after each step, beginning with the cut: the intermediate networks on the same test images."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy import networks
from catro_deploy.data.base import is_unlabelled
from catro_deploy.progress import Task
from catro_deploy.records import Metric, Plan, Recovery
from catro_deploy.runs.folder import RunFolder
from catro_deploy.stages.logits import logits_by_torch
from catro_deploy.statistics.agreement import predictions_of, share_right

__all__ = ["Intermediates"]

Floats = NDArray[np.float32]

MACS = 2e12
"""Budget of multiply-accumulates for the intermediate networks: half a minute of one core."""
FEWEST_IMAGES = 1000


@dataclass(frozen=True)
class Intermediates:
    """The networks of a run between the original and the final one, and their test images."""

    models: Mapping[str, nn.Module]
    indices: NDArray[np.int64]
    reconstructed: bool
    trained: bool

    @classmethod
    def of(cls, run: RunFolder, plan: Plan, final: nn.Module, count: int) -> "Intermediates | None":
        """The intermediate networks of ``run``, for ``count`` test images; None if it kept none.

        All images are used, or evenly spaced ones if all would take too long.
        """
        if not run.pruned_weights.is_file():
            return None
        pruned = networks.load(run, weights="pruned")
        trained = not _equal(pruned, final)
        models = {"pruned": pruned} if trained else {}
        if plan.reconstructed:
            models["cut"] = networks.load_cut(run)
        most = max(FEWEST_IMAGES, int(MACS / max(plan.pruned_macs * len(models), 1)))
        indices = np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
        return cls(models, indices, plan.reconstructed, trained)

    @property
    def steps(self) -> int:
        """The number of predictions to compute."""
        return len(self.models) * len(self.indices)

    def measure(
        self,
        run: RunFolder,
        pixels: NDArray[np.uint8],
        labels: NDArray[np.int64],
        known: Mapping[str, Floats],
        plan: Plan,
        at_once: int,
        task: Task,
    ) -> Recovery:
        """Run them on images of the packed ``pixels``; ``known`` are the original's and the final network's logits."""
        predictions = {name: predictions_of(all_logits)[self.indices] for name, all_logits in known.items()}
        between = logits_by_torch(run, self.models, pixels, plan, at_once, task, self.indices)
        found = {name: predictions_of(logits) for name, logits in between.items()}
        metric: Metric = "agreement" if is_unlabelled(labels) else "accuracy"
        expected = predictions["original"] if metric == "agreement" else labels[self.indices]
        after_pruning = found["pruned"] if self.trained else predictions["pruned"]
        return Recovery(
            metric,
            len(self.indices),
            share_right(predictions["original"], expected),
            share_right(found["cut"] if self.reconstructed else after_pruning, expected),
            share_right(after_pruning, expected) if self.reconstructed else None,
            share_right(predictions["pruned"], expected) if self.trained else None,
        )


def _equal(one: nn.Module, other: nn.Module) -> bool:
    others = other.state_dict()
    return all(torch.equal(tensor, others[name]) for name, tensor in one.state_dict().items())
