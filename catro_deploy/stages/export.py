"""``export``: the original and the pruned network as self-describing ONNX files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from catro_deploy import networks
from catro_deploy.calibration import load_int8_recipe
from catro_deploy.data.base import Subset
from catro_deploy.data.pixels import normalise
from catro_deploy.files import file_hash
from catro_deploy.graph.onnx.export import export_onnx, plan_metadata
from catro_deploy.graph.onnx.interface import Interface, write_interface
from catro_deploy.graph.onnx.ir import write_ir
from catro_deploy.precision.fp16 import write_fp16
from catro_deploy.progress import Progress
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import Settings
from catro_deploy.stages.integers import calibration_samples
from catro_deploy.stages.logits import dataset_of
from catro_deploy.targets import load_target
from catro_deploy.transports.sides import takes_ir

__all__ = ["Exported", "export"]


@dataclass(frozen=True)
class Exported:
    """The files that were written; ``half``: in half precision, of both networks or none; ``ir``: OpenVINO's IR."""

    original: Path
    pruned: Path
    half: tuple[Path, ...] = ()
    ir: tuple[Path, ...] = ()


def export(settings: Settings, run: RunFolder, progress: Progress) -> Exported:
    """Write original.onnx and pruned.onnx from the weights of ``run``; for an fp16 target also in half precision.

    If a target uses OpenVINO, each file is also written as IR.

    The images of ``[quantize] recipe`` show which layers would overflow in half precision.

    Raises:
        RunFolderError: the plan or the fine-tuned weights are missing.
        ModelError: a network cannot be written as ONNX.
        NumericsError: an ONNX file does not compute what the network computes.
        TargetError: the target is not known.
        RuntimeMissingError: a target uses OpenVINO, which is not installed here.
        DataError: a class has no image to calibrate half precision with.
    """
    target = load_target(settings.prune.target)
    in_half, with_ir = target.precision == "fp16", takes_ir(settings)
    plan = load_plan(run)
    interface = Interface.of(settings.export, plan.mean, plan.std)
    run.require(run.weights, "finetune")
    # Both are loaded before a file is replaced: a damaged plan leaves the files of the last export as they are.
    loaded = (networks.load(run, weights="original"), networks.load(run, weights="finetuned"))
    paths = (run.original_onnx, run.pruned_onnx)
    images = _calibration_images(settings, plan) if in_half else None
    halves = (run.onnx("original", "fp16"), run.onnx("pruned", "fp16"))
    made: list[Path] = []
    with progress.task("Exporting to ONNX", len(paths)) as task:
        for network, path, half in zip(loaded, paths, halves, strict=True):
            export_onnx(
                network,
                plan.input_shape,
                path,
                opset=settings.export.opset,
                dynamic_batch=settings.export.dynamic_batch,
                metadata=plan_metadata(plan, file_hash(run.plan), path.stem, interface),
            )
            half.unlink(missing_ok=True)
            if images is not None and (kept := write_fp16(path, half, images)):
                progress.note(f"{half.name}: {', '.join(kept)} stay in float32, since they would overflow")
            for file in (path, half) if in_half else (path,):
                write_interface(file, interface)
                made += write_ir(file) if with_ir else ()
            task.advance()
    return Exported(run.original_onnx, run.pruned_onnx, halves if in_half else (), tuple(made))


def _calibration_images(settings: Settings, plan: Plan) -> NDArray[np.float32]:
    train = Subset(dataset_of(settings, plan).train, plan.class_indices)
    samples = calibration_samples(train, plan, load_int8_recipe(settings.quantize.recipe))
    return normalise(samples.pixels, plan.mean, plan.std).numpy()
