"""Measuring protocols and quantisation recipes: the files in calibration/, whose comments give the reasons."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic import ValidationError as PydanticError

from catro_deploy import resources
from catro_deploy.errors import SettingsError
from catro_deploy.toml import read_toml

__all__ = [
    "Int8Recipe",
    "LatencyProtocol",
    "ProfileProtocol",
    "load_int8_recipe",
    "load_latency_protocol",
    "load_profile_protocol",
]

SIDES = (2, 3, 5, 7, 11, 13)
"""Sides of Latin squares of candidates: primes, since lines of different slope meet exactly once modulo a prime."""

# A bootstrap over fewer turns is unreliable.
LEAST_TURNS = 10


class _Protocol(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class LatencyProtocol(_Protocol):
    """How the latencies of two networks are compared."""

    warmup_s: NonNegativeFloat
    seconds: PositiveFloat
    min_samples: PositiveInt
    limit_s: PositiveFloat
    block: PositiveInt
    settling: NonNegativeInt = 2
    bootstrap_resamples: PositiveInt
    seed: NonNegativeInt

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.limit_s < self.seconds:
            raise ValueError(f"limit_s is {self.limit_s:g}, less than seconds")
        if self.min_samples < LEAST_TURNS * self.block:
            raise ValueError(f"min_samples must be at least {LEAST_TURNS} blocks, here {LEAST_TURNS * self.block}")
        return self


class ProfileProtocol(_Protocol):
    """How the layers of a network are timed."""

    candidates: PositiveInt
    squares: PositiveInt
    limit_s: PositiveFloat
    rounds: PositiveInt
    block_ms: PositiveFloat
    min_runs: PositiveInt
    max_runs: PositiveInt
    together: PositiveInt
    disagreement: PositiveFloat
    held_out: PositiveInt
    seed: NonNegativeInt

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.candidates not in SIDES:
            raise ValueError(f"candidates is {self.candidates}, but must be one of {', '.join(map(str, SIDES))}")
        if self.max_runs < self.min_runs:
            raise ValueError(f"max_runs is {self.max_runs}, less than min_runs")
        if self.held_out > self.candidates**2 // 2:
            raise ValueError(f"held_out must leave half of a square's {self.candidates**2} networks to fit on")
        return self


class Int8Recipe(_Protocol):
    """How a network is quantised to eight-bit integers.

    The recipe of a run contains the hash of its images, ``images_sha256``; other images are rejected.
    """

    samples_per_class: PositiveInt
    max_samples: PositiveInt
    seed: NonNegativeInt
    method: Literal["min-max", "entropy", "percentile", "mse"]
    percentile: Annotated[float, Field(gt=50, le=100)]
    weights: Literal["channel", "tensor"]
    keep: list[str]
    sensitivity_images: PositiveInt
    images_sha256: str = ""

    def samples_of_each(self, classes: int) -> int:
        """Images of each of ``classes`` classes that are calibrated with."""
        return max(1, min(self.samples_per_class, self.max_samples // classes))


_Kind = TypeVar("_Kind", bound=_Protocol)


def load_latency_protocol(name: str) -> LatencyProtocol:
    """Load a protocol for comparing two networks, by name or from a user's TOML file.

    Raises:
        SettingsError: there is no such protocol, or its file is not valid.
    """
    return _load("calibration/latency", name, LatencyProtocol)


def load_profile_protocol(name: str) -> ProfileProtocol:
    """Load a protocol for timing layers, by name or from a user's TOML file.

    Raises:
        SettingsError: there is no such protocol, or its file is not valid.
    """
    return _load("calibration/profile", name, ProfileProtocol)


def load_int8_recipe(name: str) -> Int8Recipe:
    """Load a quantisation recipe, by name or from a user's TOML file.

    Raises:
        SettingsError: there is no such recipe, or its file is not valid.
    """
    return _load("calibration/int8", name, Int8Recipe)


def _load(kind: resources.Kind, name: str, protocol: type[_Kind]) -> _Kind:
    path: Path = resources.find(kind, name, SettingsError)
    hint = f"A valid one to compare with: {resources.find(kind, 'standard')}"
    try:
        return protocol.model_validate(read_toml(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", hint) from None
    except PydanticError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{path} is not valid: {f'{place}: ' if place else ''}{reason}.", hint) from None
