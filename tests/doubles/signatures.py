"""Signatures of pybind11's functions, from the first lines of their docstrings."""

import inspect
import re
from collections.abc import Iterator

__all__ = ["accepts", "signatures"]

OVERLOAD = re.compile(r"^\s*\d+\. (?=\w+\()", re.MULTILINE)
PARAMETER = inspect.Parameter


def signatures(function: object) -> list[inspect.Signature]:
    """The signatures of ``function``; several if it is overloaded."""
    text = (getattr(function, "__doc__", None) or "").strip()
    if "Overloaded function" in text:
        return [_signature(part) for part in OVERLOAD.split(text)[1:]]
    return [_signature(text)]


def accepts(function: object, *arguments: object, **named: object) -> bool:
    """Whether ``function`` takes these arguments, by number and by name."""
    for signature in signatures(function):
        try:
            signature.bind(*arguments, **named)
        except TypeError:
            continue
        return True
    return False


def _signature(text: str) -> inspect.Signature:
    """Parse ``name(self: a.B, flags: int = 0, size: Tuple[int, int] = (1, 2)) -> int``."""
    begin = text.index("(") + 1
    parts = list(_parts(text[begin:]))
    if parts and parts[0].startswith("*"):
        return inspect.Signature(
            [PARAMETER("args", PARAMETER.VAR_POSITIONAL), PARAMETER("named", PARAMETER.VAR_KEYWORD)]
        )
    parameters = []
    for part in parts:
        name, _, rest = part.partition(":")
        default = None if "=" in rest.replace("==", "") else PARAMETER.empty
        parameters.append(PARAMETER(name.strip(), PARAMETER.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(parameters)


def _parts(text: str) -> Iterator[str]:
    """The parts between commas, up to the closing bracket; commas within brackets do not count."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        if letter in "([{<":
            depth += 1
        elif letter in ")]}>" and text[place - 1 : place + 1] != "->":
            if depth == 0:
                if text[start:place].strip():
                    yield text[start:place].strip()
                return
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
