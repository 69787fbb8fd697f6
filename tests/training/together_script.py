"""A training as the command line runs it under torchrun: the first process starts it, the others take part."""

import argparse
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from catro_deploy.training import TrainingJob, fit, loop
from catro_deploy.training.features import Channels, Features
from catro_deploy.training.together import dismiss, serve
from tests.training.helpers import MEAN, STD, Recorder, options, separable_split

WAYS = {
    "plain": {},
    "compiled": {"compile": True},
    "gentle": {"recipe": "gentle", "learning_rate": None, "ema": None},
    "taught": {},
}
# "gentle" has 40 steps per epoch: four epochs are enough for probing learning rates first.
IMAGES = {"plain": 90, "compiled": 90, "gentle": 640, "taught": 90}


def network(seed: int = 0) -> nn.Module:
    """A network without batch norm, whose statistics cover only the images of each process."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )


def job_of(way: str) -> TrainingJob:
    """The training; "taught" learns the outputs and feature maps of another network."""
    images, held_out = separable_split(IMAGES[way]), separable_split(21, seed=1)
    job = TrainingJob(network(), images, held_out, options(amp=False, **WAYS[way]), MEAN, STD, "test")
    if way != "taught":
        return job
    return replace(job, teacher=network(seed=1), distill=0.5, features=Features(5.0, {"4": Channels(-1)}))


def die_at(step: int) -> None:
    """End this process at step ``step``, as if it were killed."""
    train_step = loop.Training._train_step

    def dying(self: loop.Training, number: int, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if number == step:
            os._exit(9)
        return train_step(self, number, images, labels)

    loop.Training._train_step = dying


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where state and weights go, in a folder for each way")
    parser.add_argument("ways", nargs="+", choices=WAYS, help="how to train; one after the other")
    parser.add_argument("--dies-at", type=int, help="the step before which the second process is killed")
    return parser.parse_args()


def train(way: str, folder: Path) -> None:
    """Train as the first process, and write the results."""
    folder.mkdir(parents=True, exist_ok=True)
    job, recorder = job_of(way), Recorder()
    history = fit(job, folder / "state.safetensors", recorder)
    save_file(job.model.state_dict(), folder / "weights.safetensors")
    (folder / "history.json").write_text(json.dumps(asdict(history)))
    sys.stdout.write(f"processes {history.processes}, {recorder.notes}\n")


def main() -> None:
    """Train as the first process, or take part."""
    args = arguments()
    loop.compiled = lambda model, *_: torch.compile(model)  # even if it is no faster
    if os.environ["RANK"] == "0":
        for way in args.ways:
            train(way, args.folder / way)
        dismiss()
        return
    if args.dies_at:
        die_at(args.dies_at)
    sys.exit(serve())


if __name__ == "__main__":
    main()
