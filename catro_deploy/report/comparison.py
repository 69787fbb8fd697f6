"""Two runs side by side: their figures, and the settings that differ."""

from collections.abc import Callable, Iterator, Sequence

from catro_deploy.errors import RunFolderError
from catro_deploy.files import text_hash
from catro_deploy.records.overview import Comparison, Overview
from catro_deploy.report.overview import overview, settings_of
from catro_deploy.report.rendering import render
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import change, duration, large, percent, points
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.listing import run_folders
from catro_deploy.settings.sides import size_text
from catro_deploy.toml import toml_differences

__all__ = [
    "before_table",
    "compare",
    "comparison_page",
    "comparison_table",
    "comparison_words",
    "date_words",
    "latency_words",
    "list_table",
    "overview_table",
    "page_name",
    "run_before",
    "settings_table",
]

Run = Overview
LAST_STAGE, FINISHED = "Last stage", "Finished"
NONE = "-"
SWEEP = "sweep.json"
# File systems allow 255 bytes, which include those that temporary files and numbers add.
LONGEST_NAMES_BYTES = 180


def compare(earlier: RunFolder, this: RunFolder) -> Comparison:
    """The overviews of both runs, and the settings that differ.

    Raises:
        RunFolderError: a record of one of them is damaged.
    """
    differences = toml_differences(settings_of(earlier), settings_of(this))
    return Comparison(overview(earlier), overview(this), tuple(differences))


def page_name(compared: Comparison) -> str:
    """The file name of the page; long names of runs are cut, and their hash tells them apart."""
    both = f"{compared.earlier.name}-{compared.this.name}"
    if len(both.encode(errors="surrogateescape")) > LONGEST_NAMES_BYTES:
        half = LONGEST_NAMES_BYTES // 2
        cut = (name.encode()[:half].decode(errors="ignore") for name in (compared.earlier.name, compared.this.name))
        both = "-".join([*cut, text_hash(both)[:8]])
    return f"compare-{both}.html"


def run_before(run: RunFolder) -> RunFolder | None:
    """The newest run of the same network that was finished before ``run``.

    None for a cell of a sweep, since the page of the sweep compares the cells.
    """
    if not run.finished() or (run.path.resolve().parent / SWEEP).is_file():
        return None
    mine = overview(run)
    for other in run_folders(run.path.resolve().parent):
        if other.path.name == mine.name:
            continue
        try:
            theirs = overview(other)
        except RunFolderError:
            continue
        same = _network(theirs) == _network(mine)
        if same and theirs.stage == "report" and (theirs.date or "") <= (mine.date or ""):
            return other
    return None


def _network(run: Run) -> tuple[object, ...]:
    return run.model, run.model_classes, run.original_params


def comparison_words(comparison: Comparison) -> str:
    """The runs that are compared, and caveats."""
    earlier, this = comparison.earlier, comparison.this
    words = f"{earlier.name} ({date_words(earlier)}) and {this.name} ({date_words(this)})."
    if earlier.classes != this.classes:
        words += " They are for different classes: their accuracies are not comparable."
    if earlier.target != this.target:
        words += " They are for different targets: their latencies are not comparable."
    return words


def comparison_table(earlier: Run, this: Run) -> Table:
    """The figures of both runs, and the change from first to second where both were measured in the same way."""
    rows = [row for row in _rows(earlier, this) if row[1:3] != (NONE, NONE)]
    return Table(("", earlier.name, this.name, "Change"), tuple(rows), frozenset({1, 2, 3}))


def before_table(before: Comparison) -> Table:
    """The same for a report, compared with the previous run: short headings, and only the rows that can differ."""
    whole = comparison_table(before.earlier, before.this)
    rows = tuple(row for row in whole.rows if row[0] not in (LAST_STAGE, FINISHED))
    return Table(("", "Previous run", "This run", "Change"), rows, whole.numeric)


def settings_table(comparison: Comparison) -> Table:
    """The settings that differ."""
    rows = tuple((name, before, after) for name, before, after in comparison.settings) or (("none", "", ""),)
    return Table(("Settings that differ", comparison.earlier.name, comparison.this.name), rows)


def overview_table(run: Run) -> Table:
    """The figures of one run."""
    rows = [(name, shown) for name, shown, *_ in _rows(run, run) if shown != NONE]
    return Table(("", ""), tuple(rows))


def list_table(runs: Sequence[Run]) -> Table:
    """A row for each run."""
    rows = tuple(
        (
            run.name,
            date_words(run),
            *(text or NONE for text in (run.model, run.target, run.budget)),
            latency_words(run),
            _share(run, run.accuracy),
            run.stage or "not started",
        )
        for run in runs
    )
    head = ("run", "date", "network", "target", "budget", "latency", "accuracy", "last stage")
    return Table(head, rows)


def comparison_page(comparison: Comparison) -> str:
    """Everything as one HTML page."""
    earlier, this = comparison.earlier, comparison.this
    return render(
        "comparison.html.jinja",
        name=f"{earlier.name} and {this.name}",
        words=comparison_words(comparison),
        figures=comparison_table(earlier, this),
        settings=settings_table(comparison),
    )


def date_words(run: Run) -> str:
    """The time at which the last stage finished: ``2026-11-23 16:20``."""
    return str(run.date)[:16].replace("T", " ") if run.date else NONE


def latency_words(run: Run) -> str:
    """``0.497x``, followed by its origin unless it was measured."""
    if run.latency_ratio is None:
        return NONE
    return f"{run.latency_ratio:.3f}x" + ("" if run.latency_how == "measured" else f" ({run.latency_how})")


def _rows(earlier: Run, this: Run) -> Iterator[tuple[str, ...]]:
    for name, words in _WORDS:
        yield name, words(earlier), words(this), ""
    yield from _accuracy_rows(earlier, this)
    yield from _latency_rows(earlier, this)
    for name, before, after in (
        ("MACs per image", earlier.pruned_macs, this.pruned_macs),
        ("Parameters", earlier.pruned_params, this.pruned_params),
    ):
        shown = (NONE if number is None else large(number) for number in (before, after))
        yield name, *shown, change(before, after) if before and after else ""


def _accuracy_rows(earlier: Run, this: Run) -> Iterator[tuple[str, ...]]:
    alike = _images(earlier) == _images(this)
    for name, before, after in (
        ("Accuracy, original", earlier.original_accuracy, this.original_accuracy),
        ("Accuracy, pruned", earlier.accuracy, this.accuracy),
        ("Same prediction as the original", earlier.agreement, this.agreement),
    ):
        changed = (
            f"{points((after - before) * 100)} points" if alike and before is not None and after is not None else ""
        )
        yield name, _share(earlier, before), _share(this, after), changed


def _images(run: Run) -> tuple[object, ...]:
    """What identifies the images on which accuracies were measured."""
    return run.accuracy_images, run.test_images, run.classes


def _share(run: Run, share: float | None) -> str:
    if share is None:
        return NONE
    return percent(share) + (" (validation)" if run.accuracy_images == "validation" else "")


def _latency_rows(earlier: Run, this: Run) -> Iterator[tuple[str, ...]]:
    measured = all(run.latency_how == "measured" for run in (earlier, this)) and earlier.target == this.target
    for name, before, after in (
        ("Latency p50, original", earlier.original_us, this.original_us),
        ("Latency p50, pruned", earlier.pruned_us, this.pruned_us),
    ):
        shown = (NONE if us is None else duration(us) for us in (before, after))
        yield name, *shown, change(before, after) if measured and before and after else ""
    yield "Latency, of the original's", latency_words(earlier), latency_words(this), ""


def _input_words(run: Run) -> str:
    if run.input_shape is None:
        return NONE
    resized = f", resized to {size_text(run.resized_to)}" if run.resized_to else ""
    return "x".join(map(str, run.input_shape)) + resized


def _class_words(run: Run) -> str:
    return NONE if run.classes is None else f"{len(run.classes)} of {run.model_classes}"


def _text(value: object) -> str:
    return NONE if value is None else str(value)


_WORDS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    (LAST_STAGE, lambda run: _text(run.stage)),
    (FINISHED, date_words),
    ("Network", lambda run: _text(run.model)),
    ("Input", _input_words),
    ("Classes", _class_words),
    ("Target", lambda run: _text(run.target)),
    ("Budget", lambda run: _text(run.budget)),
    ("Test images", lambda run: _text(run.test_images)),
)
