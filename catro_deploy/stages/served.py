"""The ONNX files that run on the device, as jobs name them."""

from typing import Any

from catro_deploy.files import file_hash
from catro_deploy.runs import RunFolder

__all__ = ["served_models"]


def served_models(run: RunFolder, precision: str) -> dict[str, dict[str, Any]]:
    """Of ``original`` and ``pruned`` the ``file`` for devices of this ``precision``, and the ``metadata`` it must have.

    Raises:
        RunFolderError: the plan or a file is missing.
    """
    plan_hash = file_hash(run.require(run.plan, "prune"))
    return {
        name: {
            "file": run.require(path, "export").name,
            "metadata": {"network": name, "plan_sha256": plan_hash},
        }
        for name, path in run.served_onnx(precision).items()
    }
