"""Templates: what they escape, and that an undefined name in one is an error instead of empty text."""

import pytest
from jinja2 import UndefinedError

from catro_deploy.report.rendering import environment, render
from catro_deploy.report.tables import Table


def comparison(**changes):
    shown = Table(("", "old"), (("Latency", "-3.1%"),), frozenset({1}))
    values = {"name": "a", "words": "b", "figures": shown, "settings": shown} | changes
    return render("comparison.html.jinja", **values)


def test_values_are_escaped_in_html_and_numbers_have_a_true_minus():
    page = comparison(words="<script>")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert '<td class="number">−3.1%</td>' in page


def test_commands_are_not_escaped():
    assert "--classes 'a & b'" in render("reproduce.sh.jinja", command="run --classes 'a & b'", measured=False)


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(UndefinedError):
        render("reproduce.sh.jinja", measured=False)


def test_every_template_is_in_the_package_and_compiles():
    templates = environment()
    names = set(templates.list_templates())
    assert {"report.html.jinja", "report.md.jinja", "comparison.html.jinja", "style.css"} <= names
    for name in names:
        templates.get_template(name)
