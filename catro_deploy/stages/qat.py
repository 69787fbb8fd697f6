"""Quantisation-aware fine-tuning of a network that loses too much in int8."""

from typing import Any

from catro_deploy import networks
from catro_deploy.data.base import Split, is_unlabelled
from catro_deploy.precision.aware import aware
from catro_deploy.progress import Progress
from catro_deploy.records import History, Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings, follow_recipe
from catro_deploy.training import TrainingJob, fit

__all__ = ["qat"]

Proto = Any
"""An onnx.ModelProto, which has no type annotations."""


def qat(
    source: Proto,
    integers: Proto,
    images: tuple[Split, Split],
    settings: Settings,
    run: RunFolder,
    plan: Plan,
    progress: Progress,
) -> tuple[Proto, History]:
    """Train the float32 weights of ``source`` through ``integers``, its quantised network.

    Settings are those of ``[finetune]``, except epochs and learning rate, which are those of ``[quantize]``. Training
    is in float32, since mixed precision rounds by more than one quantisation step. ``images`` are those to train on
    and those to validate on. The teacher, if there is one, is the fine-tuned network. An interrupted training resumes
    after its last complete epoch.

    Raises:
        ModelError: an operator of the network cannot be trained.
        DataError: an image cannot be read, or there are fewer than 2 to train on.
        NumericsError: training diverged.
    """
    (train, validation), network = images, aware(source, integers)
    own, labelled = settings.quantize, not is_unlabelled(train.labels)
    options = follow_recipe(settings.finetune, plan.reconstructed, labelled, len(train.labels))
    changes = {
        "epochs": own.qat_epochs,
        "steps": 0,
        "learning_rate": own.qat_learning_rate,
        "amp": False,
        "compile": False,
        "distill_features": 0.0,  # layers of this network have other names
        "tensorboard": False,
    }
    job = TrainingJob(
        network.network,
        train,
        validation,
        options.model_copy(update=changes),
        plan.mean,
        plan.std,
        "fine-tuning for int8",
        networks.load(run) if options.distill else None,
        options.distill or 0.0,
        options.temperature,
    )
    history = fit(job, run.qat_state, progress)
    run.qat_state.unlink(missing_ok=True)
    return network.trained(source), history
