"""docs/results.md matches the stored results."""

from benchmarks import results_page


def test_the_page_is_made_from_the_results_that_are_stored():
    assert results_page.PAGE.read_text(encoding="utf-8") == results_page.page()
