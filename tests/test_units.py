"""Amounts with a unit, as users write them, and numbers of things."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.units import amount_text, counted, read_amount


@pytest.mark.parametrize(
    ("text", "quantity", "amount"),
    [
        ("400us", "us", 400.0),
        ("1.5 ms", "us", 1500.0),
        ("400 \u00b5s", "us", 400.0),
        ("300kB", "bytes", 300e3),
        ("300 KiB", "bytes", 300 * 1024),
        ("1.5MB", "bytes", 1.5e6),
        ("2mib", "bytes", 2 * 1024**2),
        ("1GiB", "bytes", 1024**3),
        ("12B", "bytes", 12.0),
        ("3mJ", "mJ", 3.0),
        ("250 uJ", "mJ", 0.25),
        ("1.5J", "mJ", 1500.0),
        ("120s", "s", 120.0),
        ("2 min", "s", 120.0),
    ],
)
def test_amounts_are_read_in_the_unit_of_what_is_counted(text, quantity, amount):
    assert read_amount(text, quantity) == amount


@pytest.mark.parametrize(
    ("text", "quantity"), [("400", "us"), ("400s", "us"), ("3kB", "us"), ("1e3B", "bytes"), ("-1mJ", "mJ"), ("", "s")]
)
def test_what_has_no_unit_of_it_is_no_amount(text, quantity):
    assert read_amount(text, quantity) is None


@given(st.sampled_from(["us", "s", "bytes", "mJ"]), st.floats(1e-6, 1e12))
def test_what_is_written_is_read_again(quantity, amount):
    assert read_amount(amount_text(amount, quantity), quantity) == amount


@pytest.mark.parametrize(
    ("number", "several", "words"),
    [(0, "", "0 images"), (1, "", "1 image"), (1200, "", "1,200 images"), (2, "image files", "2 image files")],
)
def test_a_number_of_things_is_written_with_the_right_form(number, several, words):
    assert counted(number, "image", several) == words
