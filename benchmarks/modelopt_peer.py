"""FastNAS of NVIDIA's Model Optimizer under our budgets: its search by FLOPs, our measurement and run folder.

Requires `pip install nvidia-modelopt torchprofile==0.0.4`; version 0.47 cannot import a newer torchprofile.
"""

import copy
import io
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.peers import Candidate, gentlest_cut, write_groups
from benchmarks.timed_widths import TimedWidths
from catro_deploy.data.base import Subset
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.pruning.cutting import Cut, cut_classifier
from catro_deploy.records import Group, GroupPlan, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.original import Original, open_original
from catro_deploy.stages.prune import pruning_batches
from catro_deploy.training.evaluate import accuracy, predict

__all__ = ["kept_groups", "prune_by_fastnas", "with_plain_convolutions"]

# Widths are multiples of this: half a vector register in float32. FastNAS's default, 32, leaves narrow networks whole.
DIVISOR = 8
BATCH_SIZE = 256


def prune_by_fastnas(settings: Settings, run: RunFolder, timed: TimedWidths, scores: Path) -> Plan:
    """Prune by FastNAS to the largest share of the FLOPs that meets the latency budget.

    It scores widths by accuracy on validation images, one layer at a time, with re-estimated batch norm statistics.
    The scores are independent of the budget, and the file ``scores`` keeps them between calls: they take hours on a CPU
    for a network with hundreds of widths.

    Raises:
        MissedError: no share meets the budget.
    """
    original = open_original(settings)
    network = trace(original.model, original.input_shape)
    batches = [images for images, _ in pruning_batches(original, settings)]

    def cut_by(strength: float) -> Candidate | None:
        subnet = fastnas(original, batches, 1 - strength, scores)
        if subnet is None:
            return None
        groups = kept_groups(original.model, subnet, network)
        return cut_classifier(original, network, Cut(groups), batches[0], settings).model, groups

    groups = gentlest_cut(original, settings, cut_by, timed, most=1.0).groups
    return write_groups(settings, original, groups, run)


def fastnas(original: Original, loader: Sequence[torch.Tensor], share: float, scores: Path) -> nn.Module | None:
    """The best subnet within a ``share`` of the FLOPs, or None; the file ``scores`` keeps scores between calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions that it was not tested with
        import modelopt.torch.prune as mtp
        from modelopt.torch.prune.fastnas import FastNASConfig

    validation = Subset(original.dataset.validation, original.wanted)

    def score(network: nn.Module) -> float:
        logits = predict(network, validation, original.mean, original.std, BATCH_SIZE, torch.device("cpu"))
        return accuracy(logits, validation.labels)

    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        subnet, found = mtp.prune(
            with_plain_convolutions(original.model),
            mode=[("fastnas", _with_divisor(FastNASConfig().model_dump()))],
            constraints={"flops": f"{share:.2%}"},
            dummy_input=torch.zeros(1, *original.input_shape),
            config={
                "data_loader": loader,
                "collect_func": lambda images: images,
                "score_func": score,
                "checkpoint": str(scores),
            },
        )
    return subnet if found["best"]["is_satisfied"] else None


def with_plain_convolutions(model: nn.Module) -> nn.Module:
    """A copy in which convolutions with ``static_padding`` are that padding and an `nn.Conv2d`.

    FastNAS prunes `nn.Conv2d` but no subclass, which the EfficientNet of efficientnet_lite_pytorch consists of.
    """
    copied = copy.deepcopy(model)
    for path, conv in list(copied.named_modules()):
        if isinstance(conv, nn.Conv2d) and isinstance(padding := getattr(conv, "static_padding", None), nn.Module):
            del conv.static_padding
            conv.__class__ = nn.Conv2d
            copied.set_submodule(path, nn.Sequential(padding, conv))
    return copied


def _with_divisor(config: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    for rules in changed.values():
        for rule in rules.values() if isinstance(rules, dict) else ():
            rule.update({name: DIVISOR for name in ("channel_divisor", "feature_divisor") if name in (rule or {})})
    return changed


def kept_groups(model: nn.Module, subnet: nn.Module, network: Network) -> tuple[GroupPlan, ...]:
    """What ``subnet``, whose channels are in another order, keeps of each group of ``model``.

    A channel is identified by the weight and bias of a batch norm. A group without one is kept whole.
    """
    return tuple(GroupPlan(g.name, g.width, _kept(model, subnet, g), g.producers) for g in network.groups)


def _kept(model: nn.Module, subnet: nn.Module, group: Group) -> tuple[int, ...]:
    for slot in group.slots:
        norm, left = (net.get_submodule(slot.module) for net in (model, subnet))
        if isinstance(norm, nn.BatchNorm2d):
            waiting = _affine(left)
            kept = []
            for index, channel in zip(slot.index, slot.channel, strict=True):
                if (pair := _affine(norm)[index]) in waiting:
                    waiting.remove(pair)
                    kept.append(channel)
            assert not waiting, f"{slot.module} has channels that were not in the original"
            return tuple(sorted(set(kept)))
    return tuple(range(group.width))


def _affine(norm: nn.Module) -> list[tuple[float, float]]:
    weight, bias = norm.get_parameter("weight"), norm.get_parameter("bias")
    return list(zip(weight.tolist(), bias.tolist(), strict=True))
