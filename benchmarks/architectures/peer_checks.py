"""Checks of a network of peer_networks.py, with catro-deploy and with torch-pruning.

Both cut to half of the multiply-accumulates, as torch counts them, or to as few as they reach if that is not possible.
Weights are random, images are noise around one pattern per class; normalisations have the statistics of the images.
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import catro_deploy
from benchmarks.architectures.check import ROUNDING, Outcomes
from benchmarks.architectures.peer_networks import PeerNetwork, ScaledNorm
from catro_deploy import PrunedModel
from catro_deploy.errors import BudgetError
from catro_deploy.graph.cut.surgery import apply_keeps_, masked
from catro_deploy.models import build_model
from catro_deploy.runtimes import open_runner

__all__ = ["CUT", "EQUAL", "HISTORY", "ONNX", "PICKLED", "RELOAD", "STATE", "check_both", "check_ours", "check_theirs"]

CUT, EQUAL, RELOAD, ONNX = "cut", "equal", "reload", "onnx"
HISTORY, STATE, PICKLED = "history", "state_dict", "pickled"
"""Ways to load with torch-pruning: its pruning history and a state dict; its own state dict; the pickled module."""

CLASSES, BATCH, BATCHES = 10, 8, 3
HALF = 0.5
# Ratios that are tried with torch-pruning, in this order: the first that meets the budget counts.
RATIOS = tuple(step / 40 for step in range(1, 39))
# Importances that are tried likewise: those of its tests.
IMPORTANCES = ("MagnitudeImportance", "RandomImportance")

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


def check_both(network: PeerNetwork, work: Path) -> dict[str, Any]:
    """Check ``network`` with both; files are written to ``work``."""
    return {"ours": check_ours(network, work), "theirs": check_theirs(network, work)}


def check_ours(network: PeerNetwork, work: Path) -> dict[str, Any]:
    """With catro-deploy: the outcome of each step, and multiply-accumulates as a share of the unpruned network's."""
    model, batches = _network(network)
    images, outcomes = batches[0][0], Outcomes()
    pruned: PrunedModel | None = None
    with outcomes.step(CUT):
        pruned = _prune_to_half(network.model, model, batches)
        _note_share(model, pruned.model, images, outcomes)
    if pruned is None:
        return _found(outcomes)
    with outcomes.step(EQUAL), torch.inference_mode():
        cut = apply_keeps_(copy.deepcopy(pruned.original), pruned.plan.keeps).eval()
        _require_equal(cut(images), masked(pruned.original, pruned.plan.keeps)(images))
    with outcomes.step(RELOAD), torch.inference_mode():
        again = catro_deploy.load(pruned.save(work / "saved"))
        _require_equal(again(images), pruned.model(images))
    with outcomes.step(ONNX):
        _check_onnx(pruned.export(work / "ours.onnx"), pruned.model, images)
    return _found(outcomes)


def check_theirs(network: PeerNetwork, work: Path) -> dict[str, Any]:
    """With torch-pruning: likewise, by ``importance``; ``refused`` counts failed ratios, ``refusal`` is the error."""
    model, batches = _network(network)
    images, outcomes = batches[0][0], Outcomes()
    cut: nn.Module | None = None
    history: list[Any] = []
    with outcomes.step(CUT):
        cut, history = _cut_to_half(model, images[:1], outcomes.figures)
        _note_share(model, cut, images, outcomes)
    if cut is None:
        return _found(outcomes)
    pruned = cut

    def reload(way: str, load: Callable[[Path], nn.Module]) -> None:
        with outcomes.step(way):
            loaded = load(work / f"{way}.pt").eval()
            with torch.inference_mode():
                _require_equal(loaded(images), pruned(images))

    reload(HISTORY, lambda path: _by_history(pruned, history, network, images[:1], path))
    reload(STATE, lambda path: _by_state_dict(pruned, network, path))
    reload(PICKLED, lambda path: _by_pickle(pruned, path))
    with outcomes.step(ONNX):
        path = work / "theirs.onnx"
        torch.onnx.export(pruned, (images[:1],), path, dynamo=True, verbose=False)
        _check_onnx(path, pruned, images)
    return _found(outcomes)


def _prune_to_half(name: str, model: nn.Module, batches: Batches) -> PrunedModel:
    """Prune to half of the multiply-accumulates or, if that cannot be met, to the next higher tenth that can."""
    for tenths in (5, 6, 7, 8):
        with suppress(BudgetError):
            return _prune(name, model, batches, tenths)
    return _prune(name, model, batches, 9)


def _prune(name: str, model: nn.Module, batches: Batches, tenths: int) -> PrunedModel:
    return catro_deploy.prune(model, batches, name=name, budget=f"{tenths}0%flops", compute="cpu")


def _cut_to_half(model: nn.Module, image: torch.Tensor, figures: dict[str, Any]) -> tuple[nn.Module, list[Any]]:
    """The network cut by torch-pruning with the first importance that works; ``figures`` record it and the failures."""
    first: Exception | None = None
    for importance in IMPORTANCES:
        refused: list[Exception] = []
        found = _by_importance(model, image, importance, refused)
        first = first or next(iter(refused), None)
        figures |= {"importance": importance, "refused": figures.get("refused", 0) + len(refused)}
        if found is not None:
            break
    if first is not None:
        figures["refusal"] = f"{type(first).__name__}: {(str(first).splitlines() or [''])[0][:200]}"
    if found is None:
        raise first or ArithmeticError("nothing was cut")
    return found


def _by_importance(
    model: nn.Module, image: torch.Tensor, importance: str, refused: list[Exception]
) -> tuple[nn.Module, list[Any]] | None:
    """The cut by the smallest ratio that meets the budget, or the largest cut; errors are added to ``refused``."""
    whole, least = _macs(model, image), float("inf")
    found: tuple[nn.Module, list[Any]] | None = None
    for ratio in RATIOS:
        try:
            cut = copy.deepcopy(model)
            pruner = _pruner(cut, image, ratio, importance)
            with torch.random.fork_rng(devices=[]):
                pruner.step()
            macs = _macs(cut, image)
        except Exception as error:  # whatever the error is, another ratio may work
            refused.append(error)
            continue
        if macs < least:
            found, least = (cut.eval(), pruner.pruning_history()), macs
        if macs <= HALF * whole:
            break
    return found


def _pruner(model: nn.Module, image: torch.Tensor, ratio: float, importance: str = IMPORTANCES[0]) -> Any:  # noqa: ANN401
    import torch_pruning

    heads = [module for module in model.modules() if isinstance(module, nn.Linear) and module.out_features == CLASSES]
    return torch_pruning.pruner.BasePruner(
        model,
        image,
        importance=getattr(torch_pruning.importance, importance)(),
        pruning_ratio=ratio,
        ignored_layers=heads,
        customized_pruners=_custom_pruners(model),
    )


def _custom_pruners(model: nn.Module) -> dict[type[nn.Module], object] | None:
    """Pruning functions for custom layers, which torch-pruning requires."""
    if not any(isinstance(module, ScaledNorm) for module in model.modules()):
        return None
    import torch_pruning

    class ScaledNormPruner(torch_pruning.pruner.BasePruningFunc):  # type: ignore[misc]
        def prune_out_channels(self, layer: ScaledNorm, idxs: Sequence[int]) -> nn.Module:
            kept = [channel for channel in range(len(layer.scale)) if channel not in set(idxs)]
            layer.scale = nn.Parameter(layer.scale.detach()[kept])
            layer.shift = nn.Parameter(layer.shift.detach()[kept])
            torch_pruning.prune_linear_in_channels(layer.mix, idxs)
            torch_pruning.prune_linear_out_channels(layer.mix, idxs)
            return layer

        def get_out_channels(self, layer: ScaledNorm) -> int:
            return len(layer.scale)

        prune_in_channels = prune_out_channels
        get_in_channels = get_out_channels

    return {ScaledNorm: ScaledNormPruner()}


def _by_history(cut: nn.Module, history: list[Any], network: PeerNetwork, image: torch.Tensor, path: Path) -> nn.Module:
    torch.save({"history": history, "weights": cut.state_dict()}, path)
    stored = torch.load(path, weights_only=True)
    fresh = build_model(network.model, CLASSES)
    _pruner(fresh, image, 0.0).load_pruning_history(stored["history"])
    fresh.load_state_dict(stored["weights"])
    return fresh


def _by_state_dict(cut: nn.Module, network: PeerNetwork, path: Path) -> nn.Module:
    import torch_pruning

    torch.save(torch_pruning.state_dict(cut), path)
    fresh = build_model(network.model, CLASSES)
    torch_pruning.load_state_dict(fresh, torch.load(path, weights_only=True))
    return fresh


def _by_pickle(cut: nn.Module, path: Path) -> nn.Module:
    torch.save(cut, path)
    loaded: nn.Module = torch.load(path, weights_only=False)
    return loaded


def _network(network: PeerNetwork) -> tuple[nn.Module, Batches]:
    """The same network and images each time; batch normalisations have the statistics of the images."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(BATCH * BATCHES) % CLASSES
    patterns = torch.randn(CLASSES, *network.input_shape, generator=generator)
    images = patterns[labels] + torch.randn(len(labels), *network.input_shape, generator=generator)
    torch.manual_seed(0)
    model = build_model(network.model, CLASSES).train()
    with torch.inference_mode():
        for _ in range(20):
            model(images)
    return model.eval(), list(zip(images.split(BATCH), labels.split(BATCH), strict=True))


def _macs(model: nn.Module, image: torch.Tensor) -> int:
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model.eval()(image)
    return int(counter.get_total_flops()) // 2


def _note_share(model: nn.Module, cut: nn.Module, images: torch.Tensor, outcomes: Outcomes) -> None:
    share = _macs(cut, images[:1]) / _macs(model, images[:1])
    outcomes.figures["macs_share"] = share
    if share >= 1:
        raise ArithmeticError("nothing was cut")


def _check_onnx(path: Path, model: nn.Module, images: torch.Tensor) -> None:
    with torch.inference_mode(), open_runner("onnxruntime", path, threads=1) as runner:
        _require_equal(torch.from_numpy(runner.infer(images[:1].numpy())), model(images[:1]))


def _require_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    deviation = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    if not deviation <= ROUNDING:
        raise ArithmeticError(f"deviates by {deviation:.2g} of the largest logit")


def _found(outcomes: Outcomes) -> dict[str, Any]:
    return {"steps": outcomes.steps, **outcomes.figures}
