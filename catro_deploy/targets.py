"""Targets: the devices that networks are made for, one TOML file each."""

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, model_validator

from catro_deploy import resources
from catro_deploy.errors import TargetError

__all__ = ["Target", "list_targets", "load_target"]

FIGURES = ("precision", "threads", "batch")


class Target(BaseModel):
    """A device and how it is used there; ``sources`` says for each figure where it comes from."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    title: str
    kind: Literal["cpu"]
    runtime: Literal["onnxruntime"]
    precision: Literal["fp32"]
    threads: PositiveInt
    batch: PositiveInt
    sources: dict[str, str]
    notes: str = ""

    @model_validator(mode="after")
    def _each_figure_has_its_source(self) -> Self:
        if missing := [figure for figure in FIGURES if not self.sources.get(figure, "").strip()]:
            raise ValueError(f"[sources] says nothing of {', '.join(missing)}")
        if unknown := sorted(set(self.sources) - set(FIGURES)):
            raise ValueError(f"[sources] speaks of {', '.join(unknown)}, which are not figures of a target")
        return self


def load_target(name_or_path: str | Path) -> Target:
    """Load a target by its name or from a file of the user's; the file's stem is the name.

    Raises:
        TargetError: there is no such target, or its file is not valid.
    """
    path = resources.find("targets", str(name_or_path), TargetError)
    hint = f"A valid one to compare with: {resources.find('targets', 'x86-cpu')}"
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return Target.model_validate({"name": path.stem} | content)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TargetError(f"{path} cannot be read: {error}.", hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise TargetError(f"{path} is not a target: {f'{place}: ' if place else ''}{first['msg']}.", hint) from None


def list_targets() -> tuple[Target, ...]:
    """All targets that come with the package, by name."""
    return tuple(load_target(name) for name in resources.names("targets"))
