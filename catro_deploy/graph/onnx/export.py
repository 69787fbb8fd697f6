"""A network as an ONNX file that computes the same, checked before it is moved into place."""

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from catro_deploy import __version__
from catro_deploy.errors import ModelError, NumericsError, SettingsError
from catro_deploy.files import replacing
from catro_deploy.graph.onnx.interface import PLAIN, Interface
from catro_deploy.graph.onnx.refusals import checker_refusal, export_refusal
from catro_deploy.graph.onnx.translations import TRANSLATIONS
from catro_deploy.interrupts import deferred_signals
from catro_deploy.runtimes import open_runner

__all__ = ["check_agreement", "export_onnx", "plan_metadata", "require_classes_for"]

# Allowed difference of the ONNX file's logits from PyTorch's, relative to the largest logit if that is above 1.
AGREEMENT = 1e-4
# Or as a multiple of the error of PyTorch's own logits: two orders of summation may err in opposite directions.
ROUNDINGS = 4
# Limit of protobuf.
LARGEST_FILE_BYTES = 2**31
CHATTY_LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "onnxslim")


def export_onnx(
    model: nn.Module,
    input_shape: tuple[int, int, int],
    path: Path,
    *,
    opset: int,
    dynamic_batch: bool = False,
    metadata: Mapping[str, str],
) -> None:
    """Write ``model`` (eval mode, CPU) to ``path``: input ``image`` (batch, *input_shape), output ``logits``.

    The batch size is 1, or any with ``dynamic_batch``. BatchNorm is folded. The file is moved into place only after it
    has passed ONNX's checker and ONNX Runtime has computed the same logits from it as PyTorch.

    Raises:
        ModelError: PyTorch or ONNX cannot express the network, at all or in this opset, or it is too large.
        NumericsError: ONNX Runtime's logits differ by more than rounding, or are NaN.
    """
    import onnx

    _require_to_fit(model)
    images = torch.randn((2 if dynamic_batch else 1, *input_shape), generator=torch.Generator().manual_seed(0))
    proto = _to_proto(model, images, opset, dynamic_batch)
    _lower_batch_norm_(proto)
    onnx.helper.set_model_props(proto, dict(metadata))
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise checker_refusal(error, opset) from error
    with replacing(path) as temporary:
        temporary.write_bytes(proto.SerializeToString())
        check_agreement(model, images, temporary, path.name)


def _require_to_fit(model: nn.Module) -> None:
    size_bytes = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    if size_bytes >= LARGEST_FILE_BYTES:
        raise ModelError(
            f"The network's weights take {size_bytes / 2**30:.1f} GiB; an ONNX file holds less than 2.",
            "Use a smaller variant of the network.",
        )


class Described(Protocol):
    """The part of a plan that goes into the metadata."""

    @property
    def model(self) -> str:
        """Factory of the network; empty if it has none."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the logits."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of the normalisation of images."""

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of the normalisation of images."""

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""


def require_classes_for(top_k: int, classes: int) -> None:
    """Check that a network of ``classes`` classes has ``top_k`` largest outputs.

    Raises:
        SettingsError: it has fewer.
    """
    if top_k > classes:
        raise SettingsError(
            f"export.top_k = {top_k}, but the network has {classes} classes.",
            f"Choose at most {classes}: --top-k {classes}, or top_k in [export] of catro.toml.",
        )


def plan_metadata(plan: Described, plan_sha256: str, network: str, interface: Interface = PLAIN) -> dict[str, str]:
    """What is needed to run the ONNX file alone and to interpret its outputs; ``network`` is the network's name.

    Unknown normalisation, and a network without a factory, are left out.

    Raises:
        SettingsError: more of the largest outputs are requested than there are classes.
    """
    require_classes_for(interface.top_k, len(plan.classes))
    inside = "uint8; normalised inside the network: (pixel / 255 - mean) / std"
    pixels = {
        "mean": json.dumps(plan.mean),
        "std": json.dumps(plan.std),
        "pixels": inside if interface.input == "uint8" else "float32; (pixel / 255 - mean) / std",
    }
    colours = {1: {"colours": "grey"}, 3: {"colours": "RGB"}}
    return {
        "network": network,
        **({"model": plan.model} if plan.model else {}),
        "classes": json.dumps(plan.classes, ensure_ascii=False),
        **(pixels if plan.mean else {}),
        "layout": interface.layout.upper(),
        "output": interface.output,
        **({"top_k": str(interface.top_k)} if interface.top_k else {}),
        **colours.get(plan.input_shape[0], {}),
        "plan_sha256": plan_sha256,
        "catro_deploy_version": __version__,
    }


def _to_proto(model: nn.Module, images: torch.Tensor, opset: int, dynamic_batch: bool) -> Any:  # noqa: ANN401 - onnx.ModelProto
    import onnxslim

    # The exporter's native code calls Python in places where an exception aborts the process.
    with deferred_signals(), _quiet():
        try:
            program = torch.onnx.export(
                model,
                (images,),
                dynamo=True,
                opset_version=opset,
                input_names=["image"],
                output_names=["logits"],
                dynamic_shapes=({0: "batch"},) if dynamic_batch else None,
                custom_translation_table=TRANSLATIONS,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise export_refusal(error) from error
        assert program is not None
        proto = onnxslim.slim(program.model_proto)
    written = next(entry.version for entry in proto.opset_import if entry.domain == "")
    if written != opset:
        raise ModelError(
            f"PyTorch {torch.__version__} cannot write this network in opset {opset}, only in {written}.",
            f"Set export.opset = {written}.",
        )
    return proto


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages for its own developers; failures are raised anyway."""
    loggers = [logging.getLogger(name) for name in CHATTY_LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _lower_batch_norm_(proto: Any) -> None:  # noqa: ANN401 - onnx.ModelProto
    """Replace each BatchNormalization that was not folded into a convolution by a Mul and an Add per channel.

    Those that normalise by the statistics of the batch itself stay.
    """
    from onnx import numpy_helper

    graph = proto.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    values = [*graph.value_info, *graph.input, *graph.output]
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type == "BatchNormalization" and constants.keys() >= set(node.input[1:]):
            parameters = [constants[name] for name in node.input[1:]]
            pair, tensors = _factor_and_summand(node, parameters, ranks[node.output[0]])
            nodes += pair
            graph.initializer.extend(tensors)
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input}
    _replace_(graph.node, nodes)
    _replace_(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in used])


def _factor_and_summand(node: Any, parameters: list[Any], rank: int) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
    """Nodes and constants that compute what the BatchNormalization ``node`` does in inference."""
    from onnx import helper, numpy_helper

    weight, bias, mean, variance = (np.asarray(values, dtype=np.float64) for values in parameters)
    epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
    factor = weight / np.sqrt(variance + epsilon)
    output = node.output[0]
    per_channel = (-1, *[1] * (rank - 2))
    tensors = [
        numpy_helper.from_array(values.astype(np.float32).reshape(per_channel), f"{output}.{name}")
        for name, values in (("factor", factor), ("summand", bias - mean * factor))
    ]
    pair = [
        helper.make_node("Mul", [node.input[0], f"{output}.factor"], [f"{output}.scaled"]),
        helper.make_node("Add", [f"{output}.scaled", f"{output}.summand"], [output]),
    ]
    return pair, tensors


def _replace_(field: Any, values: list[Any]) -> None:  # noqa: ANN401 - a repeated field of protobuf
    del field[:]
    field.extend(values)


def check_agreement(model: nn.Module, images: torch.Tensor, file: Path, name: str) -> None:
    """Require that ONNX Runtime computes the same logits from ``file`` as ``model`` does, for normalised ``images``.

    ``name`` is what messages call the file.

    Raises:
        NumericsError: the logits differ by more than rounding, or are NaN.
    """
    with torch.inference_mode():
        expected = model(images)
    with open_runner("onnxruntime", file, threads=1) as runner:
        found = torch.from_numpy(runner.infer(images.numpy()))
    difference = float((expected - found).abs().max())
    allowed = AGREEMENT * max(1.0, float(expected.abs().max()))
    if difference > allowed:
        allowed = max(allowed, ROUNDINGS * _rounding(model, images, expected))
    if not difference <= allowed:  # also if it is NaN
        raise NumericsError(
            f"The logits of {name} deviate by {difference:.3g} from PyTorch's; {allowed:.3g} is allowed.",
            "If this is nan, the weights are, too: check finetune.json, and lower finetune.learning_rate.",
        )


def _rounding(model: nn.Module, images: torch.Tensor, logits: torch.Tensor) -> float:
    """How far ``logits`` are from those in float64: many untrained layers can amplify float32's rounding.

    0 for a network that does not run in float64.
    """
    try:
        with torch.inference_mode():
            exact = copy.deepcopy(model).double()(images.double())
    except RuntimeError:
        return 0.0
    return float((exact - logits).abs().max())
