"""Image classifiers of Hugging Face transformers, from a folder with ``config.json`` and weights; CNNs only.

Nothing is downloaded, and no code that a folder contains or refers to is run: only those keys of ``config.json`` that
describe the architecture are read.
"""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.files import require_regular
from catro_deploy.settings.section import TRANSFORMERS

__all__ = [
    "architecture_of",
    "class_names",
    "folder_of",
    "read_architecture",
    "read_json",
    "require_cnn",
    "transformers_library",
    "transformers_model",
    "weights_file",
]

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# Classifiers of transformers that are not convolutional networks.
NO_CNNS = (
    "beit", "clip", "cvt", "data2vec-vision", "deit", "dinat", "dinov2", "dinov2_with_registers", "donut-swin",
    "focalnet", "hiera", "ijepa", "imagegpt", "levit", "metaclip_2", "mobilevit", "mobilevitv2", "perceiver", "pvt",
    "pvt_v2", "segformer", "shieldgemma2", "siglip", "siglip2", "swiftformer", "swin", "swinv2", "vit", "vit_msn",
)  # fmt: skip
# Keys of a configuration that concern a network's use as a backbone.
NO_ARCHITECTURE = ("model_type", "stage_names", "out_features", "out_indices")


class _LogitsAlone(nn.Module):
    """Mixin, placed before a classifier of transformers: forward returns only the logits."""

    architecture: Mapping[str, Any]

    def forward(self, images: Any) -> Any:  # noqa: ANN401 - tensors, or proxies of a trace
        """Logits (n, classes) for images (n, channels, height, width)."""
        return super().forward(images).logits


def transformers_model(folder: Path, classes: int, architecture: Mapping[str, Any] | None = None) -> nn.Module:
    """Build the classifier that ``folder`` describes, with random weights; its forward returns the logits.

    Names and shapes of its weights are those of the folder's file. With an ``architecture``, as ``architecture_of``
    returns it, the folder is not read.

    Raises:
        ModelError: transformers is not installed, or the folder does not describe a convolutional classifier of it.
    """
    library = transformers_library()
    described = dict(architecture or read_architecture(folder))
    kind = require_cnn(described, folder)
    import torch

    try:
        default = library.AutoConfig.for_model(kind)
        known = (default.to_dict().keys() | default.attribute_map) - library.PreTrainedConfig().to_dict().keys()
        options = {key: described[key] for key in sorted(known.difference(NO_ARCHITECTURE)) if key in described}
        config = library.AutoConfig.for_model(kind, num_labels=classes, **options)
        auto = library.AutoModelForImageClassification
        model: nn.Module = auto.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # an architecture may raise anything for its configuration
        raise ModelError(
            f"transformers cannot build the {kind} of {folder}: {type(error).__name__}: {error}",
            "Load it in transformers: transformers.AutoModelForImageClassification.from_pretrained(folder)",
        ) from error
    model.__class__ = _with_logits_alone(type(model))
    model.architecture = {"model_type": kind, **options}  # type: ignore[assignment]
    return model


def architecture_of(model: nn.Module) -> dict[str, Any]:
    """The architecture from which ``transformers_model`` built ``model``; empty for any other network."""
    return dict(model.architecture) if isinstance(model, _LogitsAlone) else {}


def read_architecture(folder: Path) -> dict[str, Any]:
    """The content of ``config.json`` in ``folder``.

    Raises:
        ModelError: it is missing or not JSON.
    """
    return read_json(folder / CONFIG, "It is written by save_pretrained of a Hugging Face transformers model.")


def class_names(folder: Path) -> tuple[str, ...]:
    """Names of the classes, ``id2label``, in the order of the logits; empty if there are none but LABEL_0, LABEL_1 ...

    If several classes have the same name, the index is appended to all but the first.

    Raises:
        ModelError: ``config.json`` is missing or not JSON, or its indices have gaps.
    """
    content = read_architecture(folder)
    labels = content.get("id2label")
    if not isinstance(labels, Mapping):
        return ()
    names = {str(index): str(name).strip() for index, name in labels.items()}
    if names.keys() != {str(index) for index in range(len(names))}:
        raise ModelError(
            f"id2label in {folder / CONFIG} has {len(names)} names, but not for the indices 0 to {len(names) - 1}.",
            "Correct it: one name for each logit.",
        )
    ordered = tuple(names[str(index)] for index in range(len(names)))
    if ordered == tuple(f"LABEL_{index}" for index in range(len(ordered))):
        return ()
    return tuple(name if name not in ordered[:index] else f"{name} ({index})" for index, name in enumerate(ordered))


def weights_file(folder: Path) -> Path:
    """The file of the weights in ``folder``: ``model.safetensors``, or ``pytorch_model.bin`` if only that exists."""
    files = [folder / name for name in WEIGHTS]
    return next((file for file in files if file.is_file()), files[0])


def folder_of(name: str) -> Path | None:
    """The folder in the model's name ``transformers:FOLDER``; None for any other name."""
    return Path(name.removeprefix(TRANSFORMERS)) if name.startswith(TRANSFORMERS) else None


def read_json(path: Path, hint: str) -> dict[str, Any]:
    """The JSON object in the file ``path`` of a model's folder.

    Raises:
        ModelError: it is missing or not a JSON object; the error has the hint ``hint``.
    """
    try:
        require_regular(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise ModelError(f"{path} cannot be read: {reason}.", hint) from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object.", hint)
    return content


def transformers_library() -> ModuleType:
    """The package transformers.

    Raises:
        ModelError: it is not installed.
    """
    try:
        return importlib.import_module("transformers")
    except ImportError:
        raise ModelError(
            "Models named transformers:FOLDER need transformers.", "Run: pip install 'catro-deploy[transformers]'"
        ) from None


def require_cnn(architecture: Mapping[str, Any], folder: Path) -> str:
    """Return the ``model_type`` of ``architecture``, which was read from ``folder``.

    Raises:
        ModelError: it is not an image classifier of transformers, or it cannot be pruned: a vision transformer, or
            one of ``OTHERS``.
    """
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    kind, known = architecture.get("model_type"), auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    if not isinstance(kind, str) or kind not in known:
        cnns = sorted(set(known) - {*NO_CNNS, *OTHERS})
        raise ModelError(
            f"{folder} holds a {kind or 'model without model_type'}, which is not an image classifier of transformers.",
            f"Those that can be pruned: {', '.join(cnns)}.",
        )
    if kind in NO_CNNS:
        raise ModelError(
            f"{folder} holds a {kind}, a vision transformer; catro-deploy prunes the channels of convolutional "
            "networks.",
            "Take a CNN, such as a resnet, regnet, efficientnet, mobilenet_v2 or convnext.",
        )
    if kind in OTHERS:
        raise ModelError(f"{folder} holds a {kind}, which cannot be pruned directly.", OTHERS[kind])
    return kind


OTHERS = {
    "pp_lcnet": "It takes images as BGR and gives no logits. Wrap it in your own factory: package.module:factory.",
    "timm_wrapper": "It is a network of timm: name it timm:NAME, and give its weights as [model] checkpoint.",
}


def _with_logits_alone(kind: type[nn.Module]) -> type[nn.Module]:
    """A class of the same name whose forward returns the logits; weights have the same names in both."""
    return type(kind.__name__, (_LogitsAlone, kind), {"__module__": __name__})
