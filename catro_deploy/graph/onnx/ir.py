"""An ONNX network as OpenVINO IR: an ``.xml`` file with a ``.bin`` next to it, and metadata on its input."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from catro_deploy.errors import NumericsError, RuntimeMissingError, StorageError
from catro_deploy.runtimes import Runner, open_runner
from catro_deploy.runtimes.ov_library import core, import_openvino

__all__ = ["ir_of", "write_ir"]

# A pixel's largest value: OpenVINO's tools normalise pixels, while the pipeline normalises fractions of this.
LARGEST_PIXEL = 255


def ir_of(file: Path) -> tuple[Path, Path]:
    """Paths of the IR of the ONNX ``file``, whether or not it exists: its graph and its weights."""
    return file.with_suffix(".xml"), file.with_suffix(".bin")


def write_ir(file: Path) -> tuple[Path, Path]:
    """Write the ONNX ``file`` as IR next to it, check that it computes the same, and return both files.

    Weights stay as they are: OpenVINO's own default would store them in half precision. ``rt_info`` has the metadata
    of the ONNX file, under ``framework``, and class names and preprocessing in the format of Intel's Model API, under
    ``model_info``.

    Raises:
        RuntimeMissingError: OpenVINO is not installed.
        ModelError: OpenVINO cannot read the network.
        NumericsError: the IR computes something else.
        StorageError: the disk is full.
    """
    try:
        openvino = import_openvino()
    except RuntimeMissingError as error:
        raise RuntimeMissingError(error.problem, 'pip install "catro-deploy[openvino]"') from None
    graph, weights = ir_of(file)
    with open_runner("openvino", file, 1) as original, tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made = Path(folder, graph.name)
        network = core().read_model(str(file))
        for key, value in model_info(original.metadata).items():
            network.set_rt_info(value, ["model_info", key])
        layout = original.metadata.get("layout")
        if layout:
            network.inputs[0].get_node().set_layout(openvino.Layout(layout))
        try:
            openvino.save_model(network, str(made), compress_to_fp16=False)
        except RuntimeError as error:
            raise StorageError(f"{graph} could not be written: {error}.", "Free some space.") from None
        del network
        _check_agreement(original, made, graph.name)
        made.with_suffix(".bin").replace(weights)
        made.replace(graph)
    return graph, weights


def model_info(metadata: Mapping[str, str]) -> dict[str, str]:
    """What Intel's Model API reads, from the ``metadata`` of an ONNX file; what that lacks is left out.

    Source: https://docs.openvino.ai, Model API, Configuration. Class names are separated by spaces, so spaces within
    them become underscores.
    """
    if "classes" not in metadata:
        return {}
    found = {
        "model_type": "Classification",
        "labels": " ".join("_".join(name.split()) for name in json.loads(metadata["classes"])),
        "resize_type": "standard",
    }
    if metadata.get("pixels", "").startswith("float32"):
        for key, name in (("mean", "mean_values"), ("std", "scale_values")):
            found[name] = " ".join(f"{LARGEST_PIXEL * value:.6g}" for value in json.loads(metadata[key]))
    return found


def _check_agreement(original: Runner, made: Path, name: str) -> None:
    shape = (original.batch or 1, *original.image_shape)
    generator = np.random.default_rng(0)
    images: Any = generator.standard_normal(shape).astype(np.float32)
    if original.input_type == np.uint8:
        images = generator.integers(0, 256, shape, dtype=np.uint8)
    with open_runner("openvino", made, 1) as runner:
        expected, found = original.infer(images), runner.infer(images)
    if not np.array_equal(expected, found):
        apart = float(np.abs(expected - found).max())
        raise NumericsError(
            f"The logits of {name} deviate by {apart:.3g} from those of the ONNX file it was made from."
        )
