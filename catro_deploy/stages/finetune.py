"""``finetune``: the pruned network gets its accuracy back."""

from dataclasses import asdict

from catro_deploy import networks
from catro_deploy.data import open_dataset
from catro_deploy.data.base import Dataset, Subset, is_unlabelled
from catro_deploy.files import file_hash, write_json
from catro_deploy.models.checkpoint import save_weights
from catro_deploy.plans import load_plan
from catro_deploy.progress import Progress
from catro_deploy.records import Plan
from catro_deploy.runs import RunFolder
from catro_deploy.settings import Settings, follow_recipe
from catro_deploy.settings.labels import require_distillation
from catro_deploy.training import History, fit
from catro_deploy.training.device import choose_device
from catro_deploy.training.evaluate import accuracy, predict

__all__ = ["finetune"]


def finetune(settings: Settings, run: RunFolder, progress: Progress) -> History:
    """Train the pruned network of ``run`` on its classes; write its weights and finetune.json.

    Without labels it learns from the original's answers. An interrupted fine-tuning goes on after its last whole epoch.
    With 0 epochs the weights are those of the pruning.

    Raises:
        SettingsError: the images have no labels, and the loss needs them.
        RunFolderError: there is no pruned network yet, or the plan is not one.
        DataError: the images are missing or broken, or there are fewer than 2.
        CheckpointError: the weights or the state of the interrupted fine-tuning are damaged.
        NumericsError: training diverged; what earlier epochs reached stays.
    """
    plan = load_plan(run)
    channels, height, width = plan.input_shape
    dataset = open_dataset(settings.data, (height, width), channels)
    if not dataset.labelled:
        require_distillation(settings.finetune, settings.finetune.epochs)
    options = follow_recipe(settings.finetune, plan.reconstructed, dataset.labelled)
    network = networks.load(run, weights="pruned")
    teacher = networks.load(run, weights="original") if options.distill and options.epochs else None
    history = fit(
        network,
        Subset(dataset.train, plan.class_indices),
        Subset(dataset.validation, plan.class_indices),
        options,
        plan.mean,
        plan.std,
        run.finetune_state,
        progress,
        "fine-tuning",
        teacher,
        options.distill or 0.0,
        options.temperature,
        run.events,
    )
    # One entry only: safetensors writes several in a random order, and equal weights shall make equal files.
    save_weights(network, run.weights, {"plan": file_hash(run.plan)})
    original = _original_accuracy(settings, run, plan, dataset)
    write_json(run.finetune, asdict(history) | {"original_validation_accuracy": original})
    run.finetune_state.unlink(missing_ok=True)
    return history


def _original_accuracy(settings: Settings, run: RunFolder, plan: Plan, dataset: Dataset) -> float | None:
    """The unpruned network's accuracy on the validation images; None without images or without labels."""
    images = Subset(dataset.validation, plan.class_indices)
    if not len(images.labels) or is_unlabelled(images.labels):
        return None
    network, device = networks.load(run, weights="original"), choose_device(settings.finetune.compute)
    return accuracy(predict(network, images, plan.mean, plan.std, settings.verify.batch_size, device), images.labels)
