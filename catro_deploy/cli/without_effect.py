"""Flags that the other settings leave without effect are refused: someone expects that they count.

In catro.toml, which may be shared by several targets, the same values are accepted.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catro_deploy.cli.flags import RUN
from catro_deploy.cli.settings_flags import Flags
from catro_deploy.errors import SettingsError

if TYPE_CHECKING:
    from catro_deploy.settings import Settings

__all__ = ["require_effect"]


@dataclass(frozen=True)
class _Rule:
    """When keys of a section have an effect.

    ``defaults`` maps each key to the value that requests nothing; None: every value requests something. ``because`` and
    ``instead`` follow the name of the flag and "Leave it out, or".
    """

    section: str
    defaults: Mapping[str, object]
    counts: Callable[["Settings"], bool]
    because: str
    instead: str


def _reads_recipe(settings: "Settings") -> bool:
    return settings.quantize.precision not in ("target", "fp32") or "fp16" in _sides(settings, "precision")


def _quantises(settings: "Settings") -> bool:
    return settings.quantize.precision in ("int8", "auto")


def _downloads(settings: "Settings") -> bool:
    """Whether the dataset can be downloaded, or is the user's own, which may read the setting."""
    return settings.data.name == "gtsrb" or ":" in settings.data.name


def _profiles(settings: "Settings") -> bool:
    return settings.prune.is_timed and "cpu" in _sides(settings, "kind")


def _computes_on_cpu(settings: "Settings") -> bool:
    return bool(settings.bench.runtimes) or not _runtimes(settings) <= WITHOUT_THREADS


def _builds_engines(settings: "Settings") -> bool:
    return any("tensorrt" in runtime for runtime in _runtimes(settings))


def _runs_engines(settings: "Settings") -> bool:
    return "tensorrt" in _runtimes(settings)


def _runtimes(settings: "Settings") -> set[str]:
    return _sides(settings, "runtime")


def _sides(settings: "Settings", key: str) -> set[str]:
    """The values of ``key`` of all targets."""
    from catro_deploy.transports.sides import sides_of

    return {getattr(side.target, key) for side in sides_of(settings)}


# Runtimes that use no threads of the CPU. Others that bench compares may do so.
WITHOUT_THREADS = {"tensorrt", "openvino-gpu", "openvino-npu"}
TARGETS = "name a target with TensorRT: catro-deploy targets list"
RULES = (
    _Rule(
        "data",
        {"download": False},
        _downloads,
        "is for gtsrb, and another dataset is used",
        "add --data gtsrb.",
    ),
    _Rule(
        "search",
        {"knobs": None, "minutes": None},
        lambda settings: settings.search.enabled,
        "is for a search, and none is requested",
        "add --search.",
    ),
    _Rule(
        "quantize",
        {"qat_epochs": 0, "qat_learning_rate": None},
        _quantises,
        "is for int8, and this precision is not requested",
        "add --precision int8 (or auto).",
    ),
    _Rule(
        "quantize",
        {"recipe": None},
        _reads_recipe,
        "is for int8 and fp16, and neither is requested",
        "add --precision int8 (or fp16, or auto).",
    ),
    _Rule(
        "build",
        {"level": None, "workspace_mib": None, "dla": None},
        _builds_engines,
        "is for TensorRT, and no target runs networks in it",
        TARGETS,
    ),
    _Rule("build", {"rebuilds": 0}, _runs_engines, "is for TensorRT, and no target runs networks in it", TARGETS),
    _Rule(
        "bench",
        {"transfers": False, "cuda_graph": False},
        _runs_engines,
        "is for TensorRT, and no target runs networks in it",
        TARGETS,
    ),
    _Rule(
        "bench",
        {"threads": None},
        _computes_on_cpu,
        "is for runtimes on the CPU, and no target has one",
        "name a target on a CPU: catro-deploy targets list",
    ),
    _Rule(
        "profile",
        {"protocol": None},
        _profiles,
        "is for latency budgets on CPUs, and none is given",
        "name one, such as --budget 0.5x.",
    ),
)


def require_effect(flags: Flags, every: Collection["Settings"], sections: Collection[str] | None = None) -> None:
    """Check that each of ``flags`` has an effect on one of ``every``, the settings that they are part of.

    ``sections`` are those that the command uses itself; None: all.

    Raises:
        SettingsError: one has none.
    """
    for rule in RULES:
        used = sections is None or rule.section in sections
        given = list(_given(rule, flags)) if used else []
        if given and not any(rule.counts(settings) for settings in every):
            raise SettingsError(f"{given[0]} {rule.because}.", f"Leave {given[0]} out, or {rule.instead}")


def _given(rule: _Rule, flags: Flags) -> Iterator[str]:
    """The flags that set a key of ``rule`` to a value that requests something."""
    for key, nothing in rule.defaults.items():
        value = flags.get(rule.section, {}).get(key)
        if value is not None and value != nothing:
            yield _words(f"{rule.section}.{key}")


def _words(place: str) -> str:
    """``--qat-epochs``, or ``-o quantize.qat_learning_rate`` for a setting without a flag."""
    names = [flag.name for flag in RUN if place in flag.settings]
    return f"--{names[0].replace('_', '-')}" if names else f"-o {place}"
