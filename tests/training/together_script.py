"""A training as the command line does it under torchrun: the first process asks for it, the others take part."""

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from catro_deploy.training import fit
from catro_deploy.training.loop import Training
from catro_deploy.training.together import dismiss, serve
from tests.training.helpers import MEAN, STD, Recorder, options, separable_split


def network() -> nn.Module:
    """Without batch norm, whose statistics are those of each process's own images."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )


def die_at(step: int) -> None:
    """Let this process vanish when it gets there, as if it were killed."""
    train_step = Training._train_step

    def dying(self: Training, number: int, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if number == step:
            os._exit(9)
        return train_step(self, number, images, labels)

    Training._train_step = dying


def main() -> None:
    """FOLDER [STEP]: where state and weights go, and the step before which the second process vanishes."""
    folder = Path(sys.argv[1])
    if os.environ["RANK"] == "0":
        model, recorder = network(), Recorder()
        images, held_out = separable_split(90), separable_split(21, seed=1)
        history = fit(
            model, images, held_out, options(amp=False), MEAN, STD, folder / "state.safetensors", recorder, "test"
        )
        save_file(model.state_dict(), folder / "weights.safetensors")
        sys.stdout.write(f"processes {history.processes}, {recorder.notes}\n")
        dismiss()
        return
    if len(sys.argv) > 2:
        die_at(int(sys.argv[2]))
    sys.exit(serve())


if __name__ == "__main__":
    main()
