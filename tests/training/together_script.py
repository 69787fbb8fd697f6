"""A training as the command line does it under torchrun: the first process asks for it, the others take part."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from catro_deploy.training import TrainingJob, fit, loop
from catro_deploy.training.together import dismiss, serve
from tests.training.helpers import MEAN, STD, Recorder, options, separable_split

GENTLE = {"recipe": "gentle", "learning_rate": None, "ema": None}
# 40 steps an epoch: four of them are enough to try learning rates before.
GENTLE_IMAGES = 640


def network() -> nn.Module:
    """Without batch norm, whose statistics are those of each process's own images."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )


def die_at(step: int) -> None:
    """Let this process vanish when it gets there, as if it were killed."""
    train_step = loop.Training._train_step

    def dying(self: loop.Training, number: int, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if number == step:
            os._exit(9)
        return train_step(self, number, images, labels)

    loop.Training._train_step = dying


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where state and weights go")
    parser.add_argument("--dies-at", type=int, help="the step before which the second process vanishes")
    parser.add_argument("--gentle", action="store_true", help="try learning rates first")
    parser.add_argument("--compiled", action="store_true", help="use torch.compile, even if it is no faster")
    return parser.parse_args()


def main() -> None:
    """Train as the first process, or take part."""
    args = arguments()
    if args.compiled:
        loop.compiled = lambda model, *_: torch.compile(model)
    if os.environ["RANK"] == "0":
        model, recorder = network(), Recorder()
        images, held_out = separable_split(GENTLE_IMAGES if args.gentle else 90), separable_split(21, seed=1)
        settings = options(amp=False, compile=args.compiled, **(GENTLE if args.gentle else {}))
        job = TrainingJob(model, images, held_out, settings, MEAN, STD, "test")
        history = fit(job, args.folder / "state.safetensors", recorder)
        save_file(model.state_dict(), args.folder / "weights.safetensors")
        sys.stdout.write(f"processes {history.processes}, {recorder.notes}\n")
        (args.folder / "accuracies.json").write_text(json.dumps([e.validation_accuracy for e in history.epochs]))
        if history.probe:
            (args.folder / "probe.json").write_text(json.dumps(asdict(history.probe)))
        dismiss()
        return
    if args.dies_at:
        die_at(args.dies_at)
    sys.exit(serve())


if __name__ == "__main__":
    main()
