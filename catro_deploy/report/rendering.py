"""The templates of the report: Jinja2, from the folder ``templates`` of this package."""

import re
from functools import cache
from typing import TYPE_CHECKING

from catro_deploy.report.wording import minus, typeset

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment", "render"]


def render(template: str, **values: object) -> str:
    """Render ``template`` with ``values``; in HTML every value is escaped."""
    return environment().get_template(template).render(**values)


@cache
def environment() -> "Environment":
    """The environment that finds templates by name; a variable that a template uses but is not given is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("catro_deploy.report"),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"minus": minus, "typeset": typeset, "plain": _plain}
    return found


def _plain(text: object) -> str:
    """``text`` on one line, escaped so that Markdown shows it literally."""
    return re.sub(r"([\\`*_{}\[\]<|&~#])", r"\\\1", " ".join(str(text).split()))
