"""Signatures from the docstrings of pybind11."""

import pytest

from tests.doubles.signatures import accepts


def documented(text: str) -> object:
    def function() -> None: ...

    function.__doc__ = text
    return function


PLAIN = documented("f(self: a.B, name: str, flags: int = 0, pair: Tuple[int, int] = (1, 2)) -> bool\n\nMore.")
OVERLOADED = documented(
    "g(*args, **kwargs)\nOverloaded function.\n\n1. g(self: a.B, shape: a.Dims) -> bool\n\n    Words (here).\n\n"
    "2. g(self: a.B, size: int, kind: a.E = <E.STATIC: 0>) -> bool\n"
)


@pytest.mark.parametrize(
    ("arguments", "named", "fits"),
    [
        ((1, "n"), {}, True),
        ((1, "n", 2, (3, 4)), {}, True),
        ((1,), {"name": "n", "pair": (3, 4)}, True),
        ((1,), {}, False),
        ((1, "n", 2, 3, 4), {}, False),
        ((1, "n"), {"flag": 2}, False),
    ],
)
def test_by_number_and_by_name(arguments, named, fits):
    assert accepts(PLAIN, *arguments, **named) is fits


def test_any_of_several():
    assert accepts(OVERLOADED, 1, shape=2)
    assert accepts(OVERLOADED, 1, size=2)
    assert not accepts(OVERLOADED, 1, width=2)
