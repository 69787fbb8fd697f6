"""``train``: a baseline from scratch, for users without a trained model."""

import json
from pathlib import Path

import torch
from torch import nn

from catro_deploy.data import Dataset
from catro_deploy.errors import DataError, SettingsError
from catro_deploy.files import text_hash
from catro_deploy.models import build_model
from catro_deploy.models.checkpoint import RECORD_KEY, save_weights, training_record
from catro_deploy.progress import Progress
from catro_deploy.records import History, Trained
from catro_deploy.records.files import record_text, write_record
from catro_deploy.settings import Settings, TrainSettings, follow_train_recipe
from catro_deploy.stages.images import open_images_of
from catro_deploy.stages.sizes import announce_size, sized, with_size
from catro_deploy.training import TrainingJob, fit
from catro_deploy.training.splits import NOT_IN_FINGERPRINT

__all__ = ["train"]


def train(settings: Settings, progress: Progress) -> Trained:
    """Train ``settings.model`` on all classes of the dataset; write its checkpoint and, next to it, ``<stem>.json``.

    Returns what the JSON file holds. If the checkpoint was made with the same settings before, it stays and its record
    is returned. An interrupted training resumes after its last complete epoch.

    Raises:
        SettingsError: the checkpoint exists and was not made with these settings, or its suffix is not .safetensors.
        ModelError, DataError: the network or the images are missing or broken.
        CheckpointError: the state of the interrupted training, or the checkpoint's record, is damaged.
        NumericsError: training diverged; the state after earlier epochs is kept.
    """
    settings = with_size(settings)
    checkpoint = settings.model.checkpoint
    _require_safetensors(checkpoint)
    dataset = _labelled_dataset(settings)
    options = follow_train_recipe(settings.train or TrainSettings(), len(dataset.train.labels))
    fingerprint = _fingerprint(settings, options)
    record = _existing_record(checkpoint, fingerprint)
    if record is not None:
        progress.note(f"{checkpoint} is already trained with these settings")
    else:
        announce_size(dataset, sized(settings), progress)
        record = _train(settings, options, dataset, fingerprint, progress)
    write_record(record, checkpoint.with_suffix(".json"))
    return record


def _labelled_dataset(settings: Settings) -> Dataset:
    dataset = open_images_of(settings, sized(settings))
    if not dataset.labelled:
        raise DataError(
            f"The images of {dataset.name} have no labels, and a baseline cannot be trained without them.",
            "Name a trained network's file: [model] checkpoint.",
        )
    return dataset


def _train(
    settings: Settings, options: TrainSettings, dataset: Dataset, fingerprint: str, progress: Progress
) -> Trained:
    checkpoint, name = settings.model.checkpoint, settings.model.name
    model = _new_model(name, len(dataset.classes), options.seed)
    state = checkpoint.with_name(f"{checkpoint.stem}.resume.safetensors")
    job = TrainingJob(
        model,
        dataset.train,
        dataset.validation,
        options,
        settings.model.mean,
        settings.model.std,
        f"training {name}",
    )
    history = fit(job, state, progress, checkpoint.with_name(f"{checkpoint.stem}.tensorboard"))
    record = _record(settings, options, fingerprint, dataset, history)
    save_weights(model, checkpoint, {RECORD_KEY: record_text(record)})
    state.unlink(missing_ok=True)
    return record


def _new_model(name: str, classes: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(name, classes)


def _record(
    settings: Settings, options: TrainSettings, fingerprint: str, dataset: Dataset, history: History
) -> Trained:
    return Trained(
        **vars(history),
        model=settings.model.name,
        mean=settings.model.mean,
        std=settings.model.std,
        classes=dataset.classes,
        dataset=dataset.name,
        settings=options.model_dump(mode="json"),
        fingerprint=fingerprint,
    )


def _fingerprint(settings: Settings, options: TrainSettings) -> str:
    content = {
        "model": settings.model.model_dump(mode="json", exclude={"checkpoint"}),
        "data": settings.data.model_dump(mode="json", exclude={"root", "download", "groups", "classes", "workers"})
        | {"root": str(settings.data.root.resolve())},
        "train": options.model_dump(mode="json", exclude=NOT_IN_FINGERPRINT),
    }
    return text_hash(json.dumps(content, sort_keys=True))


def _require_safetensors(checkpoint: Path) -> None:
    if checkpoint.suffix != ".safetensors":
        raise SettingsError(
            f"train writes safetensors, but model.checkpoint is {checkpoint}.",
            f"Set it to {checkpoint.with_suffix('.safetensors').name}.",
        )


def _existing_record(checkpoint: Path, fingerprint: str) -> Trained | None:
    """The record in ``checkpoint`` if these settings made it; None if there is no such file."""
    if not checkpoint.exists():
        return None
    record = training_record(checkpoint)
    if record is None or record.fingerprint != fingerprint:
        made = "was trained with other settings" if record else "was not made by train"
        raise SettingsError(
            f"{checkpoint} already exists and {made}; it is not overwritten.",
            "Move it away, or set model.checkpoint to a new name.",
        )
    return record
