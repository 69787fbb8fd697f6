"""The matrix of a sweep, read from ``sweep.toml`` and flags, and the combinations that it expands to."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field, NonNegativeFloat, PositiveInt, ValidationError

from catro_deploy.errors import SettingsError
from catro_deploy.settings.loading import read_document
from catro_deploy.settings.names import split_names
from catro_deploy.settings.section import Section
from catro_deploy.suggestions import did_you_mean

__all__ = ["ALL", "Combination", "Matrix", "SweepFile", "group_name", "load_matrix"]

ALL = "all"
"""The name of the group of all classes."""
LONGEST_NAME = 24
AXES = ("targets", "classes", "budgets", "precisions")
AGAIN = "See docs/sweep.md for an example."

Group = list[int | str]


class Exclusion(Section):
    """``[[exclude]]``: leaves out the combinations that have all of the values given here."""

    target: str | None = None
    classes: str | None = None
    budget: str | None = None
    precision: str | None = None


class SweepFile(Section):
    """``sweep.toml``: the matrix, the settings that all cells share, and what a cell uses of a machine."""

    config: Path | None = Field(None, description="Settings that all cells share; default: catro.toml next to this")
    targets: list[str] = Field(default_factory=list, description="Targets, or your devices by name")
    classes: list[str | Group] | dict[str, str | Group] = Field(
        default_factory=list, description="Groups of classes; a table gives them names; all: every class"
    )
    budgets: list[str] = Field(default_factory=list, description="Budgets, in the form of --budget")
    precisions: list[str] = Field(default_factory=list, description="Precisions, in the form of --precision")
    exclude: list[Exclusion] = Field(default_factory=list, description="Combinations that are left out")
    cpus: PositiveInt | None = Field(None, description="Cores per cell")
    gpus: NonNegativeFloat | None = Field(None, description="GPUs per training; with a fraction, trainings share one")


@dataclass(frozen=True)
class Combination:
    """One value of each axis; None: the shared settings decide. ``group`` is the name of the classes."""

    target: str | None = None
    group: str | None = None
    budget: str | None = None
    precision: str | None = None
    classes: tuple[int | str, ...] = ()

    def leaves_out(self, exclusion: Exclusion) -> bool:
        """Whether ``exclusion`` matches this combination."""
        own = {"target": self.target, "classes": self.group, "budget": self.budget, "precision": self.precision}
        asked = exclusion.model_dump(exclude_none=True)
        return bool(asked) and all(own[axis] == value for axis, value in asked.items())


@dataclass(frozen=True)
class Matrix:
    """The combinations of a sweep, in order, and the other values of ``sweep.toml``; None if not given there."""

    combinations: tuple[Combination, ...]
    config: Path | None = None
    cpus: int | None = None
    gpus: float | None = None


def load_matrix(file: Path | None, flags: Mapping[str, Sequence[str]]) -> Matrix:
    """The matrix in ``file``, overridden by ``flags``: axis to values; a flag replaces all values of its axis.

    Raises:
        SettingsError: the file does not exist or is not TOML, a key is unknown, a value is invalid or given twice, or
            an exclusion matches nothing.
    """
    content = read_document(file, AGAIN) if file else {}
    content |= {axis: list(values) for axis, values in flags.items() if values}
    try:
        asked = SweepFile.model_validate(content)
    except ValidationError as error:
        raise SettingsError(_explain(error, file), AGAIN) from None
    groups = _groups(asked.classes)
    _require_different(asked, groups)
    every = [*_combinations(asked, groups)]
    left = [one for one in every if not any(map(one.leaves_out, asked.exclude))]
    for exclusion in asked.exclude:
        if not any(one.leaves_out(exclusion) for one in every):
            said = ", ".join(f"{axis} = {value!r}" for axis, value in exclusion.model_dump(exclude_none=True).items())
            raise SettingsError(f"[[exclude]] {said or '(empty)'} matches no cell.", "Write values as in the axes.")
    if not left:
        raise SettingsError("The sweep has no cells: all are excluded.", "Remove an [[exclude]].")
    config = file.parent / asked.config.expanduser() if file and asked.config else None
    return Matrix(tuple(left), config, asked.cpus, asked.gpus)


def _combinations(asked: SweepFile, groups: Mapping[str, Group]) -> Iterator[Combination]:
    axes: list[Sequence[str | None]] = [asked.targets, [*groups], asked.budgets, asked.precisions]
    for target, group, budget, precision in itertools.product(*(axis or [None] for axis in axes)):
        one = Combination(target, group, budget, precision)
        yield one if group is None else replace(one, classes=tuple(groups[group]))


def _groups(given: Sequence[str | Group] | Mapping[str, str | Group]) -> dict[str, Group]:
    """Groups of classes by name; the group of all classes is an empty list."""
    if isinstance(given, Mapping):
        return {name: _members(group) for name, group in given.items()}
    groups: dict[str, Group] = {}
    for one in given:
        members = _members(one)
        name = group_name(members)
        if name in groups:
            raise SettingsError(
                f"Two groups of classes would be called {name!r}.",
                "Give them names of your own in sweep.toml: [classes] with a line for each, such as "
                'city = ["stop", "yield"].',
            )
        groups[name] = members
    return groups


def _members(group: str | Group) -> Group:
    names: Group = [*split_names([group])] if isinstance(group, str) else group
    return [] if names == [ALL] else names


def group_name(members: Sequence[int | str]) -> str:
    """The name of a group without one: all of its classes or, if that is too long, the first and how many more."""
    whole = "+".join(map(str, members)) or ALL
    return whole if len(whole) <= LONGEST_NAME else f"{str(members[0])[:LONGEST_NAME]}+{len(members) - 1}"


def _require_different(asked: SweepFile, groups: Mapping[str, Group]) -> None:
    """Check that no axis names a value twice.

    Raises:
        SettingsError: an axis does.
    """
    for axis in AXES:
        values: list[str] = [*groups] if axis == "classes" else getattr(asked, axis)
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise SettingsError(f"{twice} appears twice among the {axis} of the sweep.", "Name it once.")


def _explain(error: ValidationError, file: Path | None) -> str:
    lines = {}
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"] if not re.search(r"[\[\]]", str(part)))
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            known = Exclusion.model_fields if problem["loc"][0] == "exclude" else SweepFile.model_fields
            meant = did_you_mean(key, known, otherwise="Settings of runs belong in catro.toml.")
            lines[place] = f"{place} is not a key of a sweep. {meant}"
        else:
            lines[place] = f"{place} = {problem['input']!r} does not fit: {problem['msg']}."
    return "\n".join([f"Wrong sweep ({file or 'flags'}):", *lines.values()])
