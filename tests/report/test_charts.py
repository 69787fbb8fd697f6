"""Pictures of every report."""

import pytest

from catro_deploy.records.figures import ClassFigures, Histogram, Latency, Pair
from catro_deploy.report.charts import accuracy_chart, finetune_chart, latency_chart
from tests.report.made import make_finetune
from tests.report.pages import Page
from tests.report.test_few import DISCARDED


@pytest.mark.parametrize(("count", "drawn", "said"), [(50, 50, False), (51, 50, True), (1000, 50, True)])
def test_of_very_many_classes_those_with_the_lowest_change_are_drawn(count, drawn, said):
    classes = [ClassFigures(f"class {number}", 10 + number, 0.9, 0.9 - number / 2000) for number in range(count)]
    chart = Page(accuracy_chart(classes))
    assert len(chart.styled("circle", "dot")) == drawn
    words = "".join(chart.texts)
    assert f"class {count - 1}" in words
    assert ("class 0" in words) == (count == 50)
    assert (f"The 50 of {count:,} classes with the lowest change. " in words) == said
    assert "The smallest class has 10 images" in words  # of all


def test_the_loss_follows_a_name_from_right_to_left():
    chart = Page(accuracy_chart([ClassFigures("קף", 10, 0.9, 0.6), ClassFigures("stop", 10, 0.9, 0.9)]))
    assert "Largest loss: \u2068קף\u2069, −30.00 points." in "".join(chart.texts)


@pytest.mark.parametrize(
    ("p99_ms", "slower", "words"),
    [
        ((0.9, 0.6), 0, "The axis starts at 0."),
        ((0.9, 0.6), 1, "; 1 slower call is beyond its end."),
        ((1.7, 0.6), 4, "; 4 slower calls are beyond its end, and so is p99 of the original."),
        ((1.7, 1.2), 40, "; 40 slower calls are beyond its end, and so are p99 of both."),
        ((2.0, 0.6), 50, "; 50 slower calls are beyond its end, and so are p90 and p99 of the original."),
        ((2.0, 2.0), 99, "; 99 slower calls are beyond its end, and so are p90 and p99 of both."),
    ],
)
def test_marks_beyond_the_axis_are_named_and_not_drawn(p99_ms, slower, words):
    histogram = Histogram(0.0, 1.0, (0, 9, 1), (9, 0, 1), Pair(slower, 0))
    times = [Latency(p50=ms / 2, p90=ms / 1.9, p99=ms, mean=ms / 2) for ms in p99_ms]

    chart = Page(latency_chart(histogram, (times[0], times[1])))

    assert words in "".join(chart.texts)
    assert len(chart.styled("line", "mark")) == sum(ms <= 1 for one in times for ms in (one.p50, one.p90, one.p99))


def test_the_caption_of_a_discarded_training_says_everything_once():
    words = "".join(Page(finetune_chart(make_finetune(**DISCARDED))).texts)
    assert "90.00% → 70.00%" in words
    assert "->" not in words
    assert words.count("9,000 training images") == 2  # once in the description and once in the caption
