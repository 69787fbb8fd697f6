"""Checks of one architecture for the scoreboard: each step runs the product's own code, and its outcome is recorded.

The network's weights are random, but its normalisations have the statistics of the images (like those of a trained
network), so that features have a normal scale and spread. Images are noise around one pattern per class: enough to
check that everything is wired correctly, but not to evaluate accuracy.
"""

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import catro_deploy
from benchmarks.architectures.huggingface import model_name
from benchmarks.architectures.macs import compare_macs
from catro_deploy import PrunedModel
from catro_deploy.errors import BudgetError, CatroError, MissedError
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.cut.surgery import apply_keeps_, masked
from catro_deploy.models import build_model
from catro_deploy.models.huggingface import architecture_of
from catro_deploy.models.plain import write_out_weights_
from catro_deploy.progress import Silent, Task
from catro_deploy.reconstruction.loss import divergence
from catro_deploy.runtimes import open_runner

__all__ = ["LATENCY", "MACS", "PASSED", "STEPS", "check_architecture", "check_latency", "check_macs"]

MACS = "macs"
STEPS = ("build", "trace", MACS, "prune", "equal", "reconstruct", "reload", "onnx", "train")
"""In order; ``latency`` follows them if it is requested."""
LATENCY = "latency"
PASSED = "passed"

CLASSES, BATCH, BATCHES = 10, 8, 3
# Largest deviation, as a share of the largest logit, that counts as rounding.
ROUNDING = 1e-4
# Alternative limit, in multiples of PyTorch's own deviation from float64: some of these networks amplify rounding.
ROUNDINGS = 4
LEAST_LOGIT = 1e-6


Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Images, float32 (n, 3, size, size), and their labels, int64 (n,)."""


@dataclass
class Outcomes:
    """The outcome of each step, PASSED or the first line of the error, and the measured figures."""

    steps: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, doing: Callable[[], str] = lambda: "") -> Iterator[None]:
        """Record the outcome of ``name``; ``doing`` returns the task during which it failed."""
        try:
            yield
        except Exception as error:  # any error is an outcome, and the other steps still run
            place = f"{doing()}: " if doing() else ""
            self.steps[name] = f"{place}{type(error).__name__}: {_first_line(error)}"
        else:
            self.steps[name] = PASSED

    def passed(self, *names: str) -> bool:
        """Whether all of ``names`` passed."""
        return all(self.steps.get(name) == PASSED for name in names)


class _Listening(Silent):
    """Remembers the last task that was started."""

    last = ""

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        self.last = title
        with super().task(title, total, done) as task:
            yield task


def check_architecture(name: str, size: int, work: Path) -> dict[str, Any]:
    """Run all steps for the network ``name`` and images of ``size``; files are written to ``work``.

    Returns the outcome of each step and the figures: shares are relative to the unpruned network, deviations to the
    largest logit, and ``stays`` counts the channels that may not be pruned, by reason.
    """
    began = time.monotonic()
    outcomes = Outcomes(figures={"size": size})
    batches = _batches(size)
    torch.manual_seed(0)
    model: nn.Module = nn.Identity()
    name = model_name(name, work)
    with outcomes.step("build"):
        model = _with_statistics(build_model(name, CLASSES), batches)
        outcomes.figures["params"] = sum(parameter.numel() for parameter in model.parameters())
    if outcomes.passed("build"):
        _check_traced(model, size, outcomes)
    if outcomes.passed("build", "trace"):
        _check_pruned(name, model, batches, work, outcomes)
    return {"steps": outcomes.steps, **outcomes.figures, "seconds": round(time.monotonic() - began, 1)}


def check_macs(name: str, size: int, work: Path) -> dict[str, Any]:
    """Only trace the network ``name``, for images of ``size``, and count its multiply-accumulates."""
    outcomes = Outcomes()
    with outcomes.step("build"):
        model = build_model(model_name(name, work), CLASSES).eval()
        _check_traced(model, size, outcomes)
    return {"steps": outcomes.steps, **outcomes.figures}


def check_latency(name: str, size: int, work: Path) -> dict[str, Any]:
    """Prune the network ``name``, for images of ``size``, by its latency here; files are written to ``work``.

    Returns the outcome as a step, and the latency measured on this processor and the multiply-accumulates as shares of
    the unpruned network's.
    """
    began = time.monotonic()
    outcomes, progress, batches = Outcomes(), _Listening(), _batches(size)
    name = model_name(name, work)
    with outcomes.step(LATENCY, lambda: progress.last):
        model = _with_statistics(build_model(name, CLASSES), batches)
        plan = _prune_by_latency(name, model, batches, progress).plan
        assert plan.latency is not None
        (taken,) = [turn for turn in plan.latency.rounds if turn.taken]
        outcomes.figures["latency_share"] = taken.speedup.ratio
        outcomes.figures["latency_macs_share"] = plan.pruned_macs / plan.original_macs
    return {"steps": outcomes.steps, **outcomes.figures, "latency_s": round(time.monotonic() - began, 1)}


def _check_traced(model: nn.Module, size: int, outcomes: Outcomes) -> None:
    with outcomes.step("trace"):
        network = trace(write_out_weights_(copy.deepcopy(model)), (3, size, size))  # as pruning does
        outcomes.figures |= _coverage(network)
        with outcomes.step(MACS):
            outcomes.figures |= compare_macs(model, network)


def _check_pruned(name: str, model: nn.Module, batches: Batches, work: Path, outcomes: Outcomes) -> None:
    images, _ = batches[0]
    progress, figures, pruned = _Listening(), outcomes.figures, None
    with outcomes.step("prune", lambda: progress.last):
        pruned = _prune_to_half(name, model, batches, progress)
        figures["macs_share"] = pruned.plan.pruned_macs / pruned.plan.original_macs
    if pruned is None:
        return
    cut: nn.Module = nn.Identity()
    with outcomes.step("equal"), torch.inference_mode():
        cut = apply_keeps_(copy.deepcopy(pruned.original), pruned.plan.keeps).eval()
        # Not ``model`` itself, whose weights may be computed: in the original they are written out.
        whole = masked(pruned.original, pruned.plan.keeps)(images)
        figures["deviation"] = max(_deviation(pruned.original(images), model(images)), _deviation(cut(images), whole))
        _require(figures["deviation"] <= ROUNDING, f"deviates by {figures['deviation']:.2g} of the largest logit")
    if outcomes.passed("equal"):
        with outcomes.step("reconstruct"):
            _check_reconstructed(pruned, cut, batches, figures)
    with outcomes.step("reload"), torch.inference_mode():
        again = catro_deploy.load(pruned.save(work / "saved"))
        _require(torch.equal(again(images), pruned.model(images)), "logits differ after saving and loading")
    with outcomes.step("onnx"), torch.inference_mode():
        with open_runner("onnxruntime", pruned.export(work / "pruned.onnx"), threads=1) as runner:
            found = torch.from_numpy(runner.infer(images[:1].numpy()))
        figures["onnx_deviation"] = deviation = _deviation(found, pruned.model(images[:1]))
        if deviation > ROUNDING:
            exact = copy.deepcopy(pruned.model).double()(images[:1].double())
            allowed = ROUNDINGS * _deviation(pruned.model(images[:1]), exact)
            _require(deviation <= allowed, f"deviates by {deviation:.2g}")
    with outcomes.step("train"):
        _train(pruned, batches)


def _check_reconstructed(pruned: PrunedModel, cut: nn.Module, batches: Batches, figures: dict[str, Any]) -> None:
    """Record agreement with and divergence from the original's outputs, after the cut and after reconstruction."""
    images = [batch for batch, _ in batches]
    with torch.inference_mode():
        wanted = torch.cat([pruned.original(batch).argmax(1) for batch in images])
        for name, network in (("cut", cut), ("reconstructed", pruned.model)):
            predictions = torch.cat([network(batch).argmax(1) for batch in images])
            figures[f"agreement_{name}"] = float((predictions == wanted).float().mean())
            figures[f"kl_{name}"] = divergence(pruned.original, network, images)
    before, after = figures["kl_cut"], figures["kl_reconstructed"]
    _require(pruned.plan.reconstructed, "no layer was reconstructed")
    _require(after <= before * (1 + ROUNDING) + ROUNDING**2, f"KL increased from {before:.2g} to {after:.2g} nats")


def _prune_to_half(name: str, model: nn.Module, batches: Batches, progress: _Listening) -> PrunedModel:
    """Prune to half of the multiply-accumulates or, if that cannot be met, to the next higher tenth that can."""
    for tenths in (5, 6, 7, 8):
        with suppress(BudgetError):
            return _prune(name, model, batches, f"{tenths}0%flops", progress)
    return _prune(name, model, batches, "90%flops", progress)


def _prune(name: str, model: nn.Module, batches: Batches, budget: str, progress: _Listening) -> PrunedModel:
    return catro_deploy.prune(
        model, batches, name=name, budget=budget, profile="quick", compute="cpu", progress=progress
    )


def _prune_by_latency(name: str, model: nn.Module, batches: Batches, progress: _Listening) -> PrunedModel:
    """Prune to 0.6x of the latency or, if that cannot be met, to the next higher tenth that can."""
    for tenths in (6, 7, 8):
        with suppress(BudgetError, MissedError):
            return _prune(name, model, batches, f"0.{tenths}x", progress)
    return _prune(name, model, batches, "0.9x", progress)


def _train(pruned: PrunedModel, batches: Batches) -> None:
    """One training step per batch; raises if a loss or a weight is not finite."""
    before = copy.deepcopy([parameter.detach() for parameter in pruned.model.parameters()])
    pruned.finetune(batches, epochs=1, learning_rate=0.01, compute="cpu", amp=False)
    moved = [not torch.equal(old, new) for old, new in zip(before, pruned.model.parameters(), strict=True)]
    _require(any(moved), "no weight has changed")


def _batches(size: int) -> Batches:
    """Noise around one pattern per class, normalised; every class has at least two images."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(BATCH * BATCHES) % CLASSES
    patterns = torch.randn(CLASSES, 3, 4, 4, generator=generator)
    patterns = nn.functional.interpolate(patterns, size=(size, size), mode="nearest")
    images = patterns[labels] + torch.randn(len(labels), 3, size, size, generator=generator)
    return list(zip(images.split(BATCH), labels.split(BATCH), strict=True))


def _with_statistics(model: nn.Module, batches: Batches) -> nn.Module:
    """``model`` in eval mode, with the statistics of the images in its batch normalisations.

    Networks of transformers are re-initialised, so that feature maps keep their scale: with the library's
    initialisation, logits are close to zero.
    """
    for module in model.modules() if architecture_of(model) else ():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # a plain average over all batches
        norm.train()
    with torch.inference_mode():
        for images, _ in batches:
            model(images)
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
    with torch.inference_mode():
        largest = float(model.eval()(batches[0][0]).abs().max())
    _require(largest > LEAST_LOGIT, f"the largest logit is {largest:.2g}, too small for a comparison")
    return model


def _coverage(network: Network) -> dict[str, Any]:
    """The share of the layers' output channels that may be pruned, logits not counted, and why the rest may not."""
    total = sum(layer.out_channels for layer in network.layers if layer.name != network.head)
    stays: Counter[str] = Counter()
    free = 0
    for group in network.groups:
        slots = [slot for slot in group.slots if slot.axis == "out" and slot.module in group.producers]
        channels = sum(len(slot.index) for slot in slots if slot.module != network.head)
        if group.fixed:
            stays[group.fixed] += channels
        else:
            free += channels
    known = free + sum(stays.values())
    stays["in no group"] += total - known
    groups = Counter(bool(group.fixed) for group in network.groups)
    return {
        "groups": groups[False] + groups[True],
        "prunable_groups": groups[False],
        "channels": total,
        "prunable_share": free / max(1, total),
        "stays": {reason: count for reason, count in stays.most_common() if count},
    }


def _deviation(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest deviation, as a share of the largest logit; NaN if any deviation is NaN."""
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArithmeticError(otherwise)


def _first_line(error: Exception) -> str:
    text = error.problem if isinstance(error, CatroError) else str(error)
    return (text.strip().splitlines() or [""])[0][:300]
