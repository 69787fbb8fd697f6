"""Flags of commands: each sets a setting, whose type, default and help come from the model."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = [
    "BENCH",
    "BUILD",
    "CARRIED",
    "DATA",
    "DATA_ROOT",
    "EXPORT",
    "FINETUNE",
    "MODEL",
    "PRECISION",
    "PROFILE",
    "PRUNE",
    "QUANTIZE",
    "RUN",
    "SEARCH",
    "TRAIN",
    "USE",
    "VERIFY",
    "Flag",
]


@dataclass(frozen=True)
class Flag:
    """One flag and the settings it sets, as ``section.key``; the first one decides its type."""

    name: str
    settings: tuple[str, ...]
    panel: str


def _flags(section: str, panel: str, keys: str, **names: str) -> tuple[Flag, ...]:
    """A flag for each of ``keys``, named after the key unless ``names`` has another name for it."""
    return tuple(Flag(names.get(key, key), (f"{section}.{key}",), panel) for key in keys.split())


MODEL = _flags("model", "Model and data", "name checkpoint", name="model")
DATA = _flags("data", "Model and data", "name root size download", name="data", root="data_root")
DATA_ROOT = DATA[1:2]
PRUNE = (
    *_flags(
        "prune",
        "Pruning",
        "target device classes budget max_size max_memory input_size criterion reconstruct allocation depth "
        "prune_first",
    ),
    *_flags(
        "prune",
        "Pruning in detail",
        "samples_per_class max_samples max_energy worth d_min step max_width temperature activation_memory ignore seed",
    ),
)
SEARCH = _flags(
    "search",
    "Search",
    "enabled budgets minutes knobs take",
    enabled="search",
    budgets="search_budgets",
    minutes="search_minutes",
)
OPTIMISER = "epochs batch_size learning_rate schedule ema patience compute compile"
TRAIN = _flags("train", "Training", f"{OPTIMISER} recipe seed")
FINETUNE = _flags("finetune", "Fine-tuning", f"{OPTIMISER} distill recipe", recipe="finetune_recipe")
EXPORT = _flags("export", "Export", "opset dynamic_batch input layout output top_k")
PRECISION = _flags("quantize", "Precision", "precision recipe qat_epochs")
QUANTIZE = (*PRECISION, *_flags("quantize", "Precision", "max_drop"))
BUILD = _flags("build", "Engines", "level workspace_mib dla rebuilds")
VERIFY = _flags("verify", "Verification", "tolerance max_drop")
BENCH = _flags("bench", "Latency", "protocol threads batch runtimes transfers cuda_graph soak")
PROFILE = _flags("profile", "Latency", "protocol", protocol="profile")
CARRIED = tuple(flag for flag in BENCH if flag.name != "runtimes")  # a bundle compares none
USE = tuple(flag for flag in BENCH if flag.name in ("threads", "batch"))


def _shared(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """In a command of several stages, ``compute`` and ``seed`` apply to pruning and fine-tuning."""
    both = {name: (f"prune.{name}", f"finetune.{name}") for name in ("compute", "seed")}
    return tuple(replace(flag, settings=both.get(flag.name, flag.settings)) for flag in flags)


RUN = _shared((*MODEL, *DATA, *PRUNE, *SEARCH, *FINETUNE, *EXPORT, *PRECISION, *BUILD, *VERIFY, *BENCH, *PROFILE))
