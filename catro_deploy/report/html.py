"""report.html: one self-contained file with light and dark mode, for screens, phones and print."""

from dataclasses import asdict

from catro_deploy.records.report import Report
from catro_deploy.report import charts, latency_charts, selection_charts
from catro_deploy.report.agreement import agreement_chart
from catro_deploy.report.cards import cards
from catro_deploy.report.content import CONTENT
from catro_deploy.report.front import front_chart
from catro_deploy.report.precision import sensitivity_chart
from catro_deploy.report.reconstruction import reconstruction_chart
from catro_deploy.report.recovery import recovery_chart, recovery_title
from catro_deploy.report.rendering import render
from catro_deploy.report.tables import Table, pruning_settings_table, records_table
from catro_deploy.report.variants_chart import variants_chart
from catro_deploy.report.wording import isolated

__all__ = ["to_html"]

CLASSES_SHOWN = 12
PICTURES = (
    agreement_chart,
    charts.accuracy_chart,
    charts.finetune_chart,
    charts.latency_chart,
    charts.widths_chart,
    front_chart,
    latency_charts.layers_chart,
    latency_charts.rounds_chart,
    latency_charts.stairs_charts,
    reconstruction_chart,
    recovery_chart,
    recovery_title,
    selection_charts.kept_chart,
    selection_charts.path_chart,
    sensitivity_chart,
    variants_chart,
)


def to_html(report: Report) -> str:
    """Render the report that ``build_report`` returned as one HTML page."""
    functions = (cards, class_words, record_tables, *PICTURES)
    return render("report.html.jinja", report=report, **CONTENT, **{one.__name__: one for one in functions})


def class_words(report: Report) -> str:
    """``3 of 43 classes: stop, yield, ahead only``."""
    classes, known = report.classes, report.model_classes
    if len(classes) == known:
        return f"all {known} classes"
    more = f" and {len(classes) - CLASSES_SHOWN} more" if len(classes) > CLASSES_SHOWN else ""
    return f"{len(classes)} of {known} classes: {', '.join(map(isolated, classes[:CLASSES_SHOWN]))}{more}"


def record_tables(report: Report) -> list[tuple[str, Table]]:
    """Further records besides the figures, as pairs of name and table."""
    records = [
        ("Environment and protocol", report.conditions),
        ("Versions where this report was written", report.versions),
    ]
    if report.verification:
        kept = ("tolerance", "max_drop", "original", "pruned", "onnxruntime")
        verification = {key: value for key, value in asdict(report.verification).items() if key in kept and value}
        records.insert(1, ("Agreement of PyTorch and the runtime", verification))
    tables = [(name, records_table(record, ("What", "Recorded"))) for name, record in records]
    return [*tables, ("Pruning settings", pruning_settings_table(report.settings))]
