"""Networks of a run folder: rebuilt from factory + plan.json + safetensors, without pickle."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from torch import nn

from catro_deploy.errors import ModelError, RunFolderError, SettingsError
from catro_deploy.files import as_path
from catro_deploy.graph.cut.surgery import apply_keeps_
from catro_deploy.graph.fx.depth import drop_branches
from catro_deploy.graph.resizing import resizing
from catro_deploy.models import build_model
from catro_deploy.models.modes import default_modes
from catro_deploy.models.plain import copied, unwrapped, write_out_weights_
from catro_deploy.models.saved import restore_network_
from catro_deploy.records import Keep, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan

__all__ = ["load", "load_cut"]


@default_modes()
def load(
    run: RunFolder | Path | str,
    *,
    weights: Literal["finetuned", "pruned", "original"] = "finetuned",
    model: nn.Module | Callable[[int], nn.Module] | None = None,
) -> nn.Module:
    """Rebuild a network of ``run``, or of a folder that ``PrunedModel.save`` wrote, in eval mode on the CPU.

    Args:
        run: the folder.
        weights: the fine-tuned network (for ``PrunedModel.save``: the network as it was saved), the pruned one before
            fine-tuning, or the unpruned one, with outputs for the wanted classes only, in the order of the plan.
        model: replaces the plan's factory: the unpruned network as a module with all its classes, which is copied and
            whose weights do not matter, or a function that takes the number of classes and returns such a module.
            Required if a module in memory was pruned.

    Returns:
        A module that maps normalised images (n, channels, height, width) to logits (n, wanted classes).

    Raises:
        UsageError: ``run`` is not a path.
        SettingsError: ``weights`` names no network.
        RunFolderError: the plan or the weights are missing.
        ModelError: the model's code differs from the plan's, the network gives other logits than when it was saved, or
            neither the plan nor ``model`` can build it.
        CheckpointError: the weights are not those of the plan.
    """
    folder = run if isinstance(run, RunFolder) else RunFolder(as_path(run, "run"))
    plan = load_plan(folder)
    path = _weights_file(folder, weights)
    network = write_out_weights_(_unpruned(plan, model, folder))
    if weights == "original":
        apply_keeps_(network, {} if _has_whole_head(plan) else {plan.head: Keep(out=plan.class_indices)})
    else:
        network = _cut(network, plan, plan.keeps)
    restore_network_(network.eval(), plan.input_shape, path)
    return network


def _weights_file(folder: RunFolder, weights: str) -> Path:
    stages = {
        "finetuned": (folder.weights, "finetune"),
        "pruned": (folder.pruned_weights, "prune"),
        "original": (folder.original_weights, "prune"),
    }
    if weights not in stages:
        raise SettingsError(f"There are no weights {weights!r} to load.", f"Give one of: {', '.join(stages)}.")
    path, stage = stages[weights]
    if not path.is_file() and not folder.settings.exists():
        raise RunFolderError(
            f"{path} does not exist.",
            'PrunedModel.save writes the network as it was then, weights="finetuned", and weights="original".',
        )
    return folder.require(path, stage)


def load_cut(run: RunFolder) -> nn.Module:
    """Rebuild the network of ``run`` as it was right after the cut, with the original's weights.

    Raises:
        As ``load``.
    """
    plan, original = load_plan(run), load(run, weights="original")
    keeps = dict(plan.keeps)
    if not _has_whole_head(plan):  # the saved original has logits of the wanted classes only
        keeps[plan.head] = Keep(None, keeps[plan.head].inputs)
    return _cut(original, plan, keeps).eval()


def _cut(network: nn.Module, plan: Plan, keeps: Mapping[str, Keep]) -> nn.Module:
    network = resizing(network, plan.resized_to) if plan.resized_to else network
    shallow = drop_branches(network, plan.dropped, plan.settings.get("ignore", ()), plan.keeps, plan.input_shape)
    return apply_keeps_(shallow, keeps)


def _has_whole_head(plan: Plan) -> bool:
    return plan.class_indices == tuple(range(plan.model_classes))


def _unpruned(plan: Plan, model: nn.Module | Callable[[int], nn.Module] | None, folder: RunFolder) -> nn.Module:
    if model is None and not plan.model:
        raise ModelError(
            f"{folder.plan} names no factory: a module in memory was pruned.",
            "Give a function that builds that module, with all its classes: load(folder, model=...).",
        )
    if model is None:
        return build_model(plan.model, plan.model_classes, plan.architecture or None)
    if not callable(model):
        raise ModelError(
            f"The argument model is of type {type(model).__name__}.",
            "Give the unpruned torch.nn.Module, or a function that builds it, called with the number of classes.",
        )
    built = model if isinstance(model, nn.Module) else model(plan.model_classes)
    if not isinstance(built, nn.Module):
        raise ModelError(
            f"The argument model returned a {type(built).__name__}.",
            f"It is called with the number of classes, {plan.model_classes}, and must return a torch.nn.Module.",
        )
    return copied(unwrapped(built)).cpu().float().eval()
