"""Which classes are wanted: by a group's name, a class's name, or an index."""

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
    """Indices of the classes ``wanted``, in the order in which they are named; of all classes if it is empty.

    A text is looked for among the groups, then the class names, then read as an index if it is made of
    digits; a number is an index always, counted from 0. A group stands for its members in its own order. A class
    that is named twice counts once, at its first place.

    Raises:
        DataError: a name or an index is not there, or fewer than two classes remain.
    """
    found: dict[int, None] = {}
    for item in wanted:
        if isinstance(item, str) and item in groups:
            found |= dict.fromkeys(resolve_group(item, groups[item], dataset_classes))
        else:
            found |= {_index(item, dataset_classes, groups): None}
    indices = tuple(found) if wanted else tuple(range(len(dataset_classes)))
    if len(indices) < 2:
        name = ", ".join(dataset_classes[index] for index in indices) or "none"
        raise DataError(
            f"A classifier needs two classes or more to tell apart, and there is only: {name}.",
            "Name a group, or several classes: --classes " + ",".join(dataset_classes[:2]),
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
    return f"Groups: {', '.join(groups)}. {text}" if groups else text
