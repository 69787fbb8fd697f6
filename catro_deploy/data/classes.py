"""Select classes by the name of a group, the name of a class, or an index."""

import shlex
from collections.abc import Mapping, Sequence

from catro_deploy.errors import DataError
from catro_deploy.suggestions import did_you_mean

__all__ = ["resolve_classes", "resolve_group"]

NAMES_SHOWN = 50


def resolve_classes(
    dataset_classes: Sequence[str],
    groups: Mapping[str, Sequence[int | str]],
    wanted: Sequence[int | str],
) -> tuple[int, ...]:
    """Return the indices of the ``wanted`` classes, in the order given; of all classes if ``wanted`` is empty.

    A string is looked up among the groups, then among the class names, then parsed as an index if it consists of
    digits; a number is always an index, counted from 0. A group stands for its members, in the order of the group. A
    class that is in several groups, or also named outside them, is used once, at its first position.

    Raises:
        DataError: a name or an index does not exist, a class is named twice outside groups, or fewer than two classes
            are selected.
    """
    found: dict[int, None] = {}
    named: set[int] = set()
    for item in wanted:
        if isinstance(item, str) and item in groups:
            found |= dict.fromkeys(resolve_group(item, groups[item], dataset_classes))
            continue
        index = _index(item, dataset_classes, groups)
        if index in named:
            raise DataError(
                f"The class {dataset_classes[index]} is named twice.", "Name it once; indices are counted from 0."
            )
        named.add(index)
        found[index] = None
    indices = tuple(found) if wanted else tuple(range(len(dataset_classes)))
    if len(indices) < 2:
        name = ", ".join(dataset_classes[index] for index in indices) or "none"
        raise DataError(
            f"A classifier needs at least two classes, and there is only: {name}.",
            f"Name a group, or several classes: --classes {_as_flag(dataset_classes[:2])}",
        )
    return indices


def resolve_group(name: str, members: Sequence[int | str], dataset_classes: Sequence[str]) -> tuple[int, ...]:
    """Class indices of a group's ``members``, which are class names or indices, in the order of the members.

    Raises:
        DataError: the group is empty, or a member is not a class.
    """
    if not members:
        raise DataError(f"The group {name} is empty.", "List class names or indices in [data.groups].")
    try:
        return tuple(dict.fromkeys(_index(member, dataset_classes, {}) for member in members))
    except DataError as error:
        raise DataError(f"In the group {name}: {error.problem}", error.hint) from None


def _index(item: int | str, classes: Sequence[str], groups: Mapping[str, object]) -> int:
    if isinstance(item, str) and item in classes:
        return classes.index(item)
    if isinstance(item, int) or (item.isascii() and item.isdigit()):
        if 0 <= int(item) < len(classes):
            return int(item)
        raise DataError(f"There is no class {item}.", f"Indices go from 0 to {len(classes) - 1}.")
    meant = did_you_mean(item, [*groups, *classes], alike=0.5)
    raise DataError(
        f"There is no class {item!r}. {meant}".rstrip(),
        _choice(classes, groups),
    )


def _choice(classes: Sequence[str], groups: Mapping[str, object]) -> str:
    names = ", ".join(classes[:NAMES_SHOWN])
    more = len(classes) - NAMES_SHOWN
    text = f"Classes: {names}{f' and {more} more' if more > 0 else ''}."
    if with_comma := [name for name in classes if "," in name]:
        text += f" Write names that contain a comma in quotes: --classes {_as_flag(with_comma[:1])}"
    return f"Groups: {', '.join(groups)}. {text}" if groups else text


def _as_flag(names: Sequence[str]) -> str:
    """The value of ``--classes`` that selects ``names``, for a shell."""
    return shlex.quote(",".join(f'"{name}"' if "," in name else name for name in names))
