"""After fine-tuning: keep the trained network or, if training failed or made it worse, the network from before."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy.assessment.keeping import choose
from catro_deploy.data.loader import Loader, WantedClasses
from catro_deploy.models.modes import evaluated
from catro_deploy.records import Choice
from catro_deploy.training.compute import Hardware

__all__ = ["keep_better_", "logits_by", "restored_on_failure"]

Floats = NDArray[np.float32]


@contextmanager
def restored_on_failure(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a copy of ``model``, whose weights it gets back if the block fails: on the CPU, in eval mode."""
    before = copy.deepcopy(model)
    try:
        yield before
    except BaseException:  # interrupts, too
        Hardware(torch.device("cpu"), None, torch.contiguous_format).place(model).eval()
        model.load_state_dict(before.state_dict())
        model.zero_grad(set_to_none=True)
        raise


def keep_better_(
    trained: nn.Module,
    before: nn.Module,
    original: nn.Module,
    validation: Loader,
    wanted: WantedClasses,
    image_shape: Sequence[int],
    device: torch.device,
) -> Choice:
    """Give ``trained`` the weights of ``before`` if training made it worse on the images of ``validation``.

    Raises:
        DataError: the loader's batches are not valid.
    """
    batches = list(wanted.batches(validation, image_shape))
    labels = torch.cat([labels for _, labels in batches]).numpy()
    networks = (copy.deepcopy(original), before, trained)
    reference, pruned, finetuned = logits_by(networks, (images for images, _ in batches), device)
    choice = choose(reference, pruned, finetuned, labels)
    if choice.kept == "pruned":
        trained.load_state_dict(before.state_dict())
    return choice


def logits_by(networks: Sequence[nn.Module], batches: Iterable[torch.Tensor], device: torch.device) -> list[Floats]:
    """Logits (n, classes) of each network for the images of all ``batches``, computed on ``device`` in eval mode."""
    with ExitStack() as stack:
        placed = [stack.enter_context(evaluated(network, device)) for network in networks]
        with torch.inference_mode():
            found = [[network(images.to(device)).float().cpu().numpy() for network in placed] for images in batches]
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]
