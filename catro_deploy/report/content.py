"""Content that the HTML and the Markdown report share: functions that their templates call by name."""

from collections.abc import Callable, Mapping

from catro_deploy.report.agreement import agreement_table
from catro_deploy.report.code import feeding_words, infer_code, load_code, reproduce_code
from catro_deploy.report.comparison import before_table, comparison_words, settings_table
from catro_deploy.report.devices import devices_table
from catro_deploy.report.engines import engine_table, engine_words, mode_table, mode_words
from catro_deploy.report.finetuning import finetuning_words, probe_words
from catro_deploy.report.front import front_table, front_words
from catro_deploy.report.grounds import conditions, heading, how_measured
from catro_deploy.report.latency_tables import (
    budget_table,
    budgets_table,
    depth_words,
    error_table,
    layer_table,
    prediction_words,
    rounds_table,
    source_words,
    stairs_table,
)
from catro_deploy.report.precision import precision_table, precision_words, sensitivity_table
from catro_deploy.report.reconstruction import layers_table, left_table, losses_table, solved_words
from catro_deploy.report.runtimes import runtimes_table, runtimes_words
from catro_deploy.report.shipping import shipping_words
from catro_deploy.report.tables import class_table, spent, summary_table, title, width_table
from catro_deploy.report.variants import variants_table, variants_words
from catro_deploy.report.verdict import invalid_original, validity

__all__ = ["CONTENT"]

_TABLES: tuple[Callable[..., object], ...] = (
    agreement_table,
    before_table,
    budget_table,
    budgets_table,
    class_table,
    devices_table,
    engine_table,
    error_table,
    front_table,
    layer_table,
    layers_table,
    left_table,
    losses_table,
    mode_table,
    precision_table,
    rounds_table,
    runtimes_table,
    sensitivity_table,
    settings_table,
    stairs_table,
    summary_table,
    variants_table,
    width_table,
)
_WORDS: tuple[Callable[..., object], ...] = (
    comparison_words,
    conditions,
    depth_words,
    engine_words,
    feeding_words,
    finetuning_words,
    front_words,
    heading,
    how_measured,
    infer_code,
    invalid_original,
    load_code,
    mode_words,
    precision_words,
    prediction_words,
    probe_words,
    reproduce_code,
    runtimes_words,
    shipping_words,
    solved_words,
    variants_words,
    source_words,
    spent,
    title,
    validity,
)
CONTENT: Mapping[str, object] = {one.__name__: one for one in (*_TABLES, *_WORDS)}
