"""Load and save weights without pickle: safetensors, or torch files that hold only tensors."""

import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from catro_deploy.errors import CheckpointError, RunFolderError
from catro_deploy.files import require_regular, write_bytes
from catro_deploy.models.constants import PREFIX, constants_of, restore_constants_
from catro_deploy.records import Trained
from catro_deploy.records.files import record_of

__all__ = [
    "RECORD_KEY",
    "load_checkpoint",
    "networks_in",
    "read_file",
    "read_weights",
    "save_weights",
    "saving_alone",
    "training_record",
]

RECORD_KEY = "catro_deploy.train"
"""The key of ``train``'s record, as JSON, in the metadata of a safetensors file."""

WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
LISTED_KEYS = 12
AUXILIARY_HEADS = ("aux1.", "aux2.", "AuxLogits.")
"""Auxiliary heads of GoogLeNet and Inception, for training only; models are built without them."""
COUNTS = ("total_ops", "total_params")
"""Buffers that the profiler thop leaves in each module."""


def load_checkpoint(model: nn.Module, path: Path) -> None:
    """Load the weights of ``path`` into ``model``, without auxiliary heads and counts that it does not have.

    Of a file that ``save_weights`` wrote, tensors outside the state dict are loaded, too.

    Raises:
        CheckpointError: as ``read_weights``, or the tensors are not finite, or do not match the model; mismatches are
            listed.
    """
    own = model.state_dict()
    weights = read_weights(path, own)
    weights = {
        key: value
        for key, value in weights.items()
        if key in own or not (key.startswith(AUXILIARY_HEADS) or key.endswith(COUNTS))
    }
    counters = [key for key in own if key.endswith("num_batches_tracked")]
    problems = [f"missing: {key} {_shape(own[key])}" for key in own if key not in weights and key not in counters]
    problems += [f"not in the model: {key} {_shape(weights[key])}" for key in weights if key not in own]
    problems += [
        f"different shape: {key} is {_shape(weights[key])} in the file, {_shape(own[key])} in the model"
        for key in own
        if key in weights and own[key].shape != weights[key].shape
    ]
    if problems:
        raise CheckpointError(
            _listed(f"{path} does not match the model:", problems),
            "Check the model's name and the number of classes, or give the checkpoint that belongs to them.",
        )
    if unusual := [f"{kind}: {key}" for key, value in weights.items() if (kind := _unusual(value))]:
        raise CheckpointError(
            _listed(f"{path} holds tensors that are not plain weights:", unusual),
            "Save dense weights of real numbers, before any quantisation: torch.save(model.state_dict(), path)",
        )
    if broken := [f"not finite: {key}" for key, value in weights.items() if not _is_finite(value)]:
        raise CheckpointError(
            _listed(f"{path} holds NaN or infinity:", broken),
            "Its training diverged. Give a checkpoint of an earlier epoch, or train again.",
        )
    own.update(weights)  # its metadata has the format versions of the modules; files do not
    model.load_state_dict(own)
    restore_constants_(model, path)


def read_weights(path: Path, own: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """The tensors of ``path`` by name, where ``own`` are those of the model.

    If the model was saved inside another module, only its own tensors are returned, without that module's prefix, such
    as ``module.`` (DistributedDataParallel), ``_orig_mod.`` (torch.compile) or ``model.`` (in a LightningModule).

    Raises:
        CheckpointError: the file is missing, corrupt, not a mapping of names to tensors, or holds several such models.
    """
    content, place = _unwrapped(read_file(path))
    if not _is_weights(content):
        raise _not_weights(path, content, place, own)
    weights: dict[str, torch.Tensor] = dict(content)
    prefix = _prefix(path, weights, own)
    mine = (key for key in weights if key.startswith(prefix) and not key.startswith(PREFIX))
    return {key.removeprefix(prefix): weights[key] for key in mine}


def networks_in(path: Path, own: Mapping[str, object]) -> tuple[str, list[str]]:
    """Where ``path`` holds the weights that ``read_weights`` returns, and where others of the same network.

    ``own`` are the tensors of the model. Training frameworks store a moving average of the weights beside them. Places
    are written in Python: ``["model_ema"]``.

    Raises:
        CheckpointError: the file is missing or corrupt.
    """
    if path.suffix == ".safetensors":
        return "", []
    content = read_file(path)
    taken = _unwrapped(content)[1]
    return taken, [place for place in _networks(content, own) if place != taken]


def training_record(path: Path) -> Trained | None:
    """The record of ``train`` in ``path``; None if ``train`` did not write the file, or it is not a safetensors file.

    Raises:
        CheckpointError: the record is damaged, or has another format.
    """
    try:
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(RECORD_KEY)
    except (OSError, SafetensorError):
        return None
    if text is None:
        return None
    try:
        return record_of(Trained, text, f"{path}, metadata {RECORD_KEY}", "Copy the file again, or train again.")
    except RunFolderError as error:
        raise CheckpointError(error.problem, error.hint) from None


def save_weights(model: nn.Module, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the model's state dict and the tensors outside it to ``path`` as safetensors, atomically."""
    held = {**model.state_dict(), **constants_of(model)}
    tensors = {key: value.detach().cpu().contiguous().clone() for key, value in held.items()}
    write_bytes(path, save(tensors, dict(metadata or {})))


def read_file(path: Path) -> Any:  # noqa: ANN401 - checked by the caller
    """The content of the weights file ``path``, in any supported form.

    Raises:
        CheckpointError: the file is missing or corrupt.
    """
    try:
        require_regular(path)
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be read: {error.strerror}.",
            "Set [model] checkpoint in catro.toml to your weights, or make some: catro-deploy train",
        ) from None
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        _require_whole(content, path)
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}.", "Copy or save it again.") from None
    except Exception as error:  # torch.load raises whatever its parsers raise
        raise CheckpointError(
            f"{path} is not a torch file of tensors only ({type(error).__name__}).",
            "Files that pickle whole modules are refused, since loading one runs code. "
            "Save the weights alone: torch.save(model.state_dict(), path)",
        ) from None


def _require_whole(content: bytes, path: Path) -> None:
    """Verify the checksums in torch's files, which are zip archives: torch.load does not."""
    file = io.BytesIO(content)
    if not zipfile.is_zipfile(file):  # the format of torch before 1.6 has no checksums
        return
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise CheckpointError(f"{path} is damaged: the checksum of its part {damaged} is wrong.", "Copy it again.")


def _unwrapped(content: Any) -> tuple[Any, str]:  # noqa: ANN401
    """What a training framework wrapped, and its place in ``content``."""
    place = ""
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content, place = content[wrapper], f'{place}["{wrapper}"]'
    return content, place


def _is_weights(content: Any) -> bool:  # noqa: ANN401
    named = isinstance(content, Mapping) and all(isinstance(key, str) for key in content)
    return named and all(isinstance(value, torch.Tensor) for value in content.values())


def _not_weights(path: Path, content: Any, place: str, own: Mapping[str, object]) -> CheckpointError:  # noqa: ANN401
    """The error for ``content``, found in ``path`` at ``place``, which is no mapping of names to tensors."""
    what = f"a {type(content).__name__}"
    if isinstance(content, Mapping):
        keys = [f"{key!r} ({type(value).__name__})" for key, value in content.items()]
        more = f" and {len(keys) - LISTED_KEYS} more" if len(keys) > LISTED_KEYS else ""
        what += f" with the keys {', '.join(keys[:LISTED_KEYS])}{more}" if keys else " without keys"
    found = [f"{place}{inner}" for inner in _networks(content, own)]
    return CheckpointError(
        f"{path} holds {what}, not a mapping of names to tensors.",
        f"Save the weights alone: {saving_alone(path, found[0]) if found else 'torch.save(model.state_dict(), path)'}",
    )


def saving_alone(path: Path, place: str) -> str:
    """Code that saves the weights at ``place`` in ``path`` alone."""
    return f'torch.save(torch.load("{path}", "cpu"){place}, "weights.pth")'


def _networks(content: Any, own: Mapping[str, object], place: str = "") -> Iterator[str]:  # noqa: ANN401
    """Places of all mappings in ``content`` with most of the tensors ``own``, under any prefix."""
    if not isinstance(content, Mapping):
        return
    tensors = {key: one for key, one in content.items() if isinstance(key, str) and isinstance(one, torch.Tensor)}
    if 2 * max(_matches(tensors, own).values(), default=0) > len(own):
        yield place
    for key, value in content.items():
        yield from _networks(value, own, f"{place}[{key!r}]".replace("'", '"'))


def _prefix(path: Path, weights: Mapping[str, torch.Tensor], own: Mapping[str, object]) -> str:
    """What precedes the names of ``own`` in ``weights``; empty if most of them are not there under any prefix."""
    matches = _matches(weights, own)
    most = max(matches.values(), default=0)
    prefixes = [prefix for prefix, count in matches.items() if count == most]
    if 2 * most <= len(own) or "" in prefixes:
        return ""
    if len(prefixes) > 1:
        raise CheckpointError(
            f"{path} holds {len(prefixes)} networks with the tensors of the model, under {', '.join(sorted(prefixes))}",
            "Save the weights of one of them alone: torch.save(model.state_dict(), path)",
        )
    return prefixes[0]


def _matches(weights: Iterable[str], own: Mapping[str, object]) -> Counter[str]:
    """How many names of ``own`` are in ``weights`` under each prefix."""
    return Counter(key[:start] for key in weights for start in _starts(key) if key[start:] in own)


def _starts(name: str) -> Iterator[int]:
    """Where ``name`` and, after each of its dots, a shorter name begins."""
    yield 0
    yield from (place + 1 for place, letter in enumerate(name) if letter == ".")


def _listed(title: str, problems: list[str]) -> str:
    more = [f"... and {len(problems) - LISTED_KEYS} more"] if len(problems) > LISTED_KEYS else []
    return "\n".join([title, *problems[:LISTED_KEYS], *more])


def _shape(tensor: torch.Tensor) -> list[int]:
    return list(tensor.shape)


def _unusual(tensor: torch.Tensor) -> str:
    """Why ``tensor`` cannot be a weight; empty if it can."""
    if tensor.is_meta:
        return "without values, on the meta device"
    if tensor.is_quantized:
        return "quantised"
    if tensor.layout != torch.strided:
        return "sparse"
    return "complex" if tensor.is_complex() else ""


def _is_finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
