"""Networks of a run folder: factory + plan.json + safetensors, built again without pickle."""

from pathlib import Path
from typing import Literal

from torch import nn

from catro_deploy.graph.depth import drop_branches
from catro_deploy.graph.surgery import apply_keeps_
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import load_checkpoint
from catro_deploy.plans import load_plan
from catro_deploy.records import Keep
from catro_deploy.runs import RunFolder

__all__ = ["load"]


def load(
    run: RunFolder | Path | str, *, weights: Literal["finetuned", "pruned", "original"] = "finetuned"
) -> nn.Module:
    """Build a network of ``run`` again, in eval mode on the CPU.

    It maps normalised images (n, channels, height, width) to logits (n, wanted classes). ``weights`` chooses between
    the fine-tuned network, the pruned one before fine-tuning, and the unpruned one whose head knows the wanted classes
    only.

    Raises:
        RunFolderError: the plan or the weights are missing.
        ModelError, CheckpointError: the model's code or the weights are not those of the plan.
    """
    folder = run if isinstance(run, RunFolder) else RunFolder(Path(run))
    plan = load_plan(folder)
    path, stage = {
        "finetuned": (folder.weights, "finetune"),
        "pruned": (folder.pruned_weights, "prune"),
        "original": (folder.original_weights, "prune"),
    }[weights]
    folder.require(path, stage)
    model = build_model(plan.model, plan.model_classes)
    whole_head = plan.class_indices == tuple(range(plan.model_classes))
    head_only = {} if whole_head else {plan.head: Keep(out=plan.class_indices)}
    if weights == "original":
        apply_keeps_(model, head_only)
    else:
        model = apply_keeps_(drop_branches(model, plan.dropped), plan.keeps)
    load_checkpoint(model, path)
    return model.eval()
