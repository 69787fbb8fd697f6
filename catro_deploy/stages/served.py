"""The ONNX files that run on the device, as jobs name them."""

from collections.abc import Mapping

from catro_deploy.agent.jobs import ModelFile
from catro_deploy.files import file_hash
from catro_deploy.records import Precision, Quantize
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load
from catro_deploy.settings import TARGETS_OWN, Settings
from catro_deploy.targets import load_target

__all__ = ["model_of", "served_models", "served_precisions"]


def served_precisions(run: RunFolder, settings: Settings) -> dict[str, Precision]:
    """The served precisions of ``original`` and ``pruned``: the target's own, or the one that ``quantize`` chose.

    Raises:
        RunFolderError: a precision is requested, but the run was not quantised.
    """
    own = load_target(settings.prune.target).precision
    if settings.quantize.precision == TARGETS_OWN:
        return {"original": own, "pruned": own}
    return {"original": own, "pruned": load(Quantize, run).shipped}


def served_models(run: RunFolder, precisions: Mapping[str, Precision]) -> dict[str, ModelFile]:
    """The files of the networks in ``precisions``.

    Raises:
        RunFolderError: the plan or a file is missing.
    """
    return {name: model_of(run, name, precision) for name, precision in precisions.items()}


def model_of(run: RunFolder, network: str, precision: Precision) -> ModelFile:
    """The file of ``original`` or ``pruned`` in ``precision``, and the metadata it must have.

    Raises:
        RunFolderError: the plan or the file is missing.
    """
    plan_hash = file_hash(run.require(run.plan, "prune"))
    file = run.require(run.onnx(network, precision), "quantize" if precision == "int8" else "export")
    return ModelFile(file.name, {"network": network, "plan_sha256": plan_hash})
