"""report.md: the report for a terminal, a merge request or a wiki."""

from catro_deploy.records.report import Report
from catro_deploy.report.content import CONTENT
from catro_deploy.report.recovery import recovery_table, recovery_title, recovery_words
from catro_deploy.report.rendering import render
from catro_deploy.report.tables import pruning_settings_table, records_table

__all__ = ["to_markdown"]


def to_markdown(report: Report) -> str:
    """Render the report that ``build_report`` returned as Markdown (CommonMark with tables)."""
    functions = (records_table, pruning_settings_table, recovery_table, recovery_title, recovery_words)
    return render("report.md.jinja", report=report, **CONTENT, **{one.__name__: one for one in functions})
