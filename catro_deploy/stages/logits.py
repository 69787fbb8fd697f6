"""Images packed for the device, and their logits, computed there and in PyTorch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray
from torch import nn

from catro_deploy.agent.events import Event, ImagesDone, LogitsPiece
from catro_deploy.agent.jobs import ModelFile, VerifyJob
from catro_deploy.agent.pieces import decoded
from catro_deploy.agent.probabilities import log_softmax
from catro_deploy.data.base import Dataset, Split
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import DataError, MessageError
from catro_deploy.files import naming
from catro_deploy.memory import reused_pages
from catro_deploy.progress import Task
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.images import open_images_of
from catro_deploy.stages.stored_logits import stored_logits
from catro_deploy.transports import run_job
from catro_deploy.transports.bundle import Errand
from catro_deploy.transports.execution import Use

__all__ = ["dataset_of", "log_probabilities", "logits_by_torch", "logits_errand", "logits_on_device", "packed"]

Floats = NDArray[np.float32]

LIMIT_S = 4 * 3600


def dataset_of(settings: Settings, plan: Plan) -> Dataset:
    """The dataset that ``settings`` name, in the input size of the network of ``plan``.

    A dataset without class names fits the classes of any plan.

    Raises:
        DataError: its classes are not those of the plan.
    """
    _, height, width = plan.input_shape
    dataset = open_images_of(settings, (height, width))
    if not dataset.classes:
        return dataset
    names = tuple(dataset.classes[i] for i in plan.class_indices if i < len(dataset.classes))
    if names != plan.classes:
        raise DataError(
            f"{dataset.name} has the classes {', '.join(names)}; the plan has {', '.join(plan.classes)}.",
            "Point [data] at the dataset that the network was pruned with.",
        )
    return dataset


@contextmanager
def packed(run: RunFolder, images: Split, plan: Plan, batch_size: int) -> Iterator[NDArray[np.uint8]]:
    """All ``images``, uint8 (n, channels, height, width), in a temporary file of ``run``."""
    count = len(images.labels)
    try:
        # Written before it is mapped: if the disk is full, writing to a page of a mapped file kills the process.
        with naming(run.packed_images), run.packed_images.open("wb") as file:
            shape = (count, *plan.input_shape)
            write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for start in range(0, count, batch_size):
                file.write(images.images(np.arange(start, min(start + batch_size, count))).numpy().tobytes())
        yield np.load(run.packed_images, mmap_mode="r")
    finally:
        run.packed_images.unlink(missing_ok=True)


def logits_by_torch(
    run: RunFolder,
    models: Mapping[str, nn.Module],
    pixels: NDArray[np.uint8],
    plan: Plan,
    at_once: int,
    task: Task,
    indices: NDArray[np.int64] | None = None,
) -> dict[str, Floats]:
    """Logits of ``models``, on the CPU, for packed images of ``run``; only for those at ``indices``, if given."""
    chosen = np.arange(len(pixels)) if indices is None else indices
    with stored_logits(run.path, models) as logits, torch.inference_mode(), reused_pages():
        for start in range(0, len(chosen), at_once):
            part = pixels[chosen[start : start + at_once]]
            images = normalise(torch.from_numpy(part), plan.mean, plan.std)
            for name, model in models.items():
                logits[name].append(model(images).numpy().astype("<f4").tobytes())
                task.advance(len(images))
        return {name: stored.array(len(chosen), len(plan.classes)) for name, stored in logits.items()}


def log_probabilities(run: RunFolder, logits: Mapping[str, Floats], at_once: int) -> dict[str, Floats]:
    """The logarithms of the softmax of ``logits`` (n, classes) by name, in files like theirs; ``at_once`` rows a step.

    Raises:
        StorageError: the run's folder cannot be written.
    """
    with stored_logits(run.path, logits) as stored:
        for name, rows in logits.items():
            for start in range(0, len(rows), at_once):
                stored[name].append(log_softmax(rows[start : start + at_once]).astype("<f4").tobytes())
        return {name: one.array(*logits[name].shape) for name, one in stored.items()}


def logits_errand(
    title: str, settings: Settings, run: RunFolder, plan: Plan, use: Use, models: Mapping[str, ModelFile]
) -> Errand[VerifyJob]:
    """The job that computes the logits of ``models`` (see ``served_models``) on the packed images."""
    job = VerifyJob(
        runtime=use.runtime,
        threads=use.threads,
        engine=use.engine,
        models=dict(models),
        images=run.packed_images.name,
        batch_size=settings.verify.batch_size,
        mean=tuple(plan.mean),
        std=tuple(plan.std),
    )
    return Errand(title, job, [run.packed_images.name, *(model.file for model in models.values())], LIMIT_S)


def logits_on_device(
    run: RunFolder, errand: Errand[VerifyJob], device: str, classes: int, task: Task, note: Callable[[str], None]
) -> tuple[dict[str, Floats], str]:
    """Logits (n, classes) of each network of ``errand``, by the runtime on the ``device``; and that runtime.

    The images must be packed already.

    Raises:
        MessageError: logits are of a network that was not requested, or their number does not match the images.
        ModelError, RuntimeMissingError, DeviceError: they cannot be run there.
        FaultError: the agent crashed or did not finish.
    """

    with stored_logits(run.path, errand.job.models) as stored:

        def take(event: Event) -> None:
            if isinstance(event, ImagesDone):
                task.advance(event.images)
            elif isinstance(event, LogitsPiece):
                if event.model not in stored:
                    raise MessageError(f"There are logits of {event.model!r}, which was not requested.")
                stored[event.model].append(decoded(event.base64))

        found = run_job(device, errand.job, run.path, errand.files, limit_s=errand.limit_s, note=note, on_event=take)
        images = len(np.load(run.path / errand.job.images, mmap_mode="r"))
        return {name: one.array(images, classes) for name, one in stored.items()}, found.runtime
