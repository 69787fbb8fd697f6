"""A page of HTML that needs nothing else, and tables in it."""

from html import escape
from importlib import resources

from catro_deploy.report.tables import Table
from catro_deploy.report.wording import minus, typeset

__all__ = ["folded", "html_table", "page"]

# The page may load nothing from anywhere, whatever a class name tries.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(name: str, body: str) -> str:
    """A page called ``name`` with the HTML ``body``, in light and dark, on paper and on a phone."""
    style = resources.files("catro_deploy.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(name)}</title>\n<style>\n{style}</style>\n'
        f"</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def folded(name: str, table: Table, unfolded: bool = False) -> str:
    """A table that is shown when its name is clicked."""
    return f"<details{' open' if unfolded else ''}><summary>{escape(name)}</summary>{html_table(table)}</details>\n"


def html_table(table: Table) -> str:
    """The first column names the rows; numbers stand right-aligned with a true minus."""

    def style(column: int) -> str:
        return ' class="number"' if column in table.numeric else ' class="text"' if column else ""

    head = "".join(f'<th scope="col"{style(i)}>{escape(cell)}</th>' for i, cell in enumerate(table.head))
    rows = "".join(
        "<tr>"
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(
            f"<td{style(i)}>{escape(typeset(minus(cell) if i in table.numeric else cell))}</td>"
            for i, cell in enumerate(row)
            if i
        )
        + "</tr>"
        for row in table.rows
    )
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{inside}</table></div>'
