"""The steps of a cell, each run within one process, and what a step needs from a machine while it runs."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from catro_deploy import pipeline
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.outside import counts_latency
from catro_deploy.stages.replacing import are_done
from catro_deploy.targets import load_target
from catro_deploy.transports.reach import reachable
from catro_deploy.transports.registry import HERE

__all__ = ["STEPS", "Needs", "Step", "is_done", "needs_of", "together"]


@dataclass(frozen=True)
class Step:
    """Stages that run one after another in one process; ``doing`` is a word for what it does."""

    name: str
    doing: str
    stages: tuple[str, ...]


STEPS = (
    Step("prune", "pruning", ("search", "variants", "prune")),
    Step("finetune", "fine-tuning", ("finetune",)),
    Step("measure", "measuring", ("export", "quantize", "build", "verify", "bench", "runtimes", "ship", "report")),
)
PRUNE, _, MEASURE = STEPS


@dataclass(frozen=True)
class Needs:
    """What a step needs: a ``device`` to measure on, exclusively while it runs; a GPU, if there are any.

    ``here``: the device is the machine on which the step itself runs, so nothing else may compute there.
    """

    device: str | None = None
    here: bool = False
    gpu: bool = False


def needs_of(step: Step, settings: Settings) -> Needs:
    """What ``step`` needs in a run with these ``settings``. This machine is named by its target."""
    target, device = load_target(settings.prune.target), settings.prune.device
    measures = reachable(target, device) and (step is MEASURE or (step is PRUNE and counts_latency(settings)))
    compute = settings.prune.compute if step is PRUNE else settings.finetune.compute
    gpu = compute != "cpu" and (step is not MEASURE or settings.quantize.qat_epochs > 0)
    if not measures:
        return Needs(gpu=gpu)
    return Needs(target.name if device == HERE else device, device == HERE, gpu)


def together(steps: Sequence[Step], settings: Settings) -> tuple[Step, ...]:
    """The first of ``steps``, and those after it that the same process may run, as long as none of them measures."""
    first, *rest = steps
    if needs_of(first, settings).device is not None:
        return (first,)
    return (first, *itertools.takewhile(lambda step: needs_of(step, settings).device is None, rest))


def is_done(step: Step, settings: Settings, run: RunFolder) -> bool:
    """Whether all stages of ``step`` have finished with these ``settings``, and their files are as they wrote them."""
    return run.settings.is_file() and are_done(step.stages, settings, run, pipeline.STAGES)
