"""Pictures of every report."""

import pytest

from catro_deploy.records.figures import ClassFigures
from catro_deploy.report.charts import accuracy_chart
from tests.report.pages import Page


@pytest.mark.parametrize(("count", "drawn", "said"), [(50, 50, False), (51, 50, True), (1000, 50, True)])
def test_of_very_many_classes_those_that_lost_most_are_drawn(count, drawn, said):
    classes = [ClassFigures(f"class {number}", 10 + number, 0.9, 0.9 - number / 2000) for number in range(count)]
    chart = Page(accuracy_chart(classes))
    assert len(chart.styled("circle", "dot")) == drawn
    words = "".join(chart.texts)
    assert f"class {count - 1}" in words
    assert ("class 0" in words) == (count == 50)
    assert (f"The 50 of {count:,} classes that lost most. " in words) == said
    assert "The smallest class has 10 images" in words  # of all
