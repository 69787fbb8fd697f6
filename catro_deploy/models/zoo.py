"""Networks of torchvision and of timm, by name; CNNs only."""

import importlib.util
from collections.abc import Sequence
from types import ModuleType

from torch import nn

from catro_deploy.errors import ModelError
from catro_deploy.suggestions import did_you_mean, similar

__all__ = [
    "require_known",
    "similar_models",
    "timm_library",
    "timm_model",
    "timm_size",
    "torchvision_model",
    "torchvision_size",
]

USUAL_SIZE = 224
LISTED_NAMES = 40

TORCHVISION_TRANSFORMERS = ("vit_", "swin_", "maxvit_")
WITH_AUXILIARY_HEADS = ("googlenet", "inception_v3")
# Modules of timm.models whose blocks consist of attention between positions.
TIMM_TRANSFORMERS = (
    "beit", "cait", "coat", "convit", "crossvit", "csatv2", "davit", "deepseek_vit", "deit", "edgenext",
    "efficientformer", "efficientformer_v2", "efficientvit_mit", "efficientvit_msra", "eva", "focalnet", "gcvit",
    "gemma4_vit", "hiera", "hieradet_sam2", "iformer", "levit", "maxxvit", "metaformer", "mlp_mixer", "mobilevit",
    "mvitv2", "naflexvit", "nest", "nextvit", "pit", "pvt_v2", "qwen3_vit", "sequencer", "shvit", "swiftformer",
    "swin_transformer", "swin_transformer_v2", "swin_transformer_v2_cr", "tiny_vit", "tnt", "twins", "visformer",
    "vision_transformer", "vision_transformer_hybrid", "vision_transformer_relpos", "vision_transformer_sam",
    "vitamin", "volo", "xcit",
)  # fmt: skip


def torchvision_model(name: str, classes: int) -> nn.Module:
    """Build torchvision's classifier ``name``, with random weights and no auxiliary heads, which only training needs.

    Raises:
        ModelError: there is no such model, or it is a vision transformer.
    """
    import torchvision

    require_known("torchvision", name)
    options = {"init_weights": False, "aux_logits": False} if name in WITH_AUXILIARY_HEADS else {}
    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=classes, **options)
    return model


def torchvision_size(name: str) -> int:
    """Height and width, which are equal, of the images that torchvision's weights of ``name`` were trained for."""
    import torchvision

    if name not in torchvision.models.list_models(module=torchvision.models):
        return USUAL_SIZE
    side: int
    (side,) = next(iter(torchvision.models.get_model_weights(name))).transforms().crop_size
    return side


def timm_model(name: str, classes: int) -> nn.Module:
    """Build timm's classifier ``name``, with or without a tag of weights (``resnet50.a1_in1k``), with random weights.

    Raises:
        ModelError: timm is not installed, there is no such model, or it is a vision transformer.
    """
    timm = timm_library()
    architecture = name.partition(".")[0]
    require_known("timm", architecture)
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes)
    except Exception as error:  # an architecture may raise anything for the number of classes or the tag
        raise ModelError(
            f"timm cannot build {name!r}: {type(error).__name__}: {error}",
            f"Its weights are listed by: timm.list_pretrained({architecture + '*'!r})",
        ) from error
    return model


def timm_size(name: str) -> int:
    """Height and width, the larger if they differ, of the images that timm's weights of ``name`` were trained for.

    Raises:
        ModelError: timm is not installed.
    """
    timm = timm_library()
    found = timm.models.get_pretrained_cfg(name) if timm.is_model(name.partition(".")[0]) else None
    if found is None:
        return USUAL_SIZE
    _, height, width = found.input_size
    return max(int(height), int(width))


def require_known(library: str, name: str) -> None:
    """Check that ``library``, torchvision or timm, has the classifier ``name``, without a tag of weights.

    Raises:
        ModelError: it does not, or it is a vision transformer; or timm is not installed.
    """
    import torchvision

    if library == "torchvision":
        known = torchvision.models.list_models(module=torchvision.models)
        transformer = name.startswith(TORCHVISION_TRANSFORMERS)
    else:
        timm = timm_library()
        known = timm.list_models()
        source = timm.models.model_entrypoint(name).__module__ if timm.is_model(name) else ""
        transformer = source.rpartition(".")[2] in TIMM_TRANSFORMERS
    if name not in known:
        raise _unknown(library, name, known)
    if transformer:
        raise _transformer(library, name)


def similar_models(name: str, own: Sequence[str]) -> list[str]:
    """Full names similar to ``name``: of models with this name after a prefix, else of the most similar ones."""
    import torchvision

    libraries = {"torchvision": torchvision.models.list_models(module=torchvision.models)}
    if importlib.util.find_spec("timm"):
        libraries["timm"] = timm_library().list_models()
    exact = [one for one in own if one.endswith(f"_{name}")]
    exact += [f"{library}:{name}" for library, names in libraries.items() if name in names]
    known = {known: f"torchvision:{known}" for known in libraries["torchvision"]} | {known: known for known in own}
    return exact or [known[near] for near in similar(name, known, most=2)]


def timm_library() -> ModuleType:
    """The package timm.

    Raises:
        ModelError: it is not installed.
    """
    try:
        import timm
    except ImportError:
        raise ModelError("Models named timm:NAME need timm.", "Run: pip install 'catro-deploy[timm]'") from None
    return timm


def _unknown(library: str, name: str, known: Sequence[str]) -> ModelError:
    more = ", ..." if len(known) > LISTED_NAMES else ""
    some = known[:: -(-len(known) // LISTED_NAMES)] if more else known
    return ModelError(
        f"{library} has no classifier {name!r}.",
        did_you_mean(name, known, most=3, otherwise=f"It has: {', '.join(some)}{more}"),
    )


def _transformer(library: str, name: str) -> ModelError:
    return ModelError(
        f"{library}:{name} is a vision transformer; catro-deploy prunes the channels of convolutional networks.",
        "Take a CNN, such as torchvision:resnet50, torchvision:efficientnet_b0 or timm:convnext_tiny.",
    )
