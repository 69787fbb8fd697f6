"""Measured figures in README and documentation match the stored results, and wrong figures are detected."""

from benchmarks.accuracy.reconstruction import PAGE as RECONSTRUCTION
from benchmarks.accuracy.reconstruction_page import page as reconstruction_page
from benchmarks.common import read_result
from benchmarks.figures import all_problems, pages, problems, sources

ROW = "resnet20-cifar10-search-0"
PATH = f"search.json/rows/{ROW}/accuracy"
ACCURACY = f"{read_result('search.json')['rows'][ROW]['accuracy']:.2%}"
ENTRY = {"text": "With search", "values": [PATH], "stated": {"0.35x": "a budget"}}
TEXT = f"With search: {ACCURACY}\nat 0.35x."
BY_HAND = {
    *("89.0%", "95.3%"),
    *("85.7%", "87.4%", "87.3%", "86.7%", "86.6%", "81.0%", "90.16%", "1.4 points", "83.4%"),
    *("99.20%", "0.597x", "8 minutes", "27%", "99.04%", "13.50%", "86.38%", "92.50%"),
}


def test_every_figure_stands_in_the_results():
    assert all_problems() == []
    assert sources().keys() <= pages().keys()


def test_no_more_figures_are_measured_by_hand():
    by_hand = {figure for entries in sources().values() for entry in entries for figure in entry.get("by_hand", {})}
    assert by_hand == BY_HAND


def test_a_mean_is_that_of_all_seeds():
    entry = {
        "text": "Mean",
        "means": ["reconstruction.json/rows/resnet20-cifar10-0.5x-ours-gentle-10_epochs-?/accuracy"],
    }
    assert problems("page", "Mean: 91.38%.", [entry]) == []  # mean of 91.45, 91.29 and 91.41%
    assert "91.45% is not" in problems("page", "Mean: 91.45%.", [entry])[0]


def test_a_wrong_or_new_figure_is_found():
    assert problems("page", TEXT, [ENTRY]) == []
    assert "12.34% is not" in problems("page", TEXT.replace(ACCURACY, "12.34%"), [ENTRY])[0]
    assert "12 ms is not" in problems("page", TEXT + " In 12 ms.", [ENTRY])[0]
    assert f"{ACCURACY} is not" in problems("page", f"Elsewhere {ACCURACY}.\n\n{TEXT}", [ENTRY])[0]


def test_a_listed_figure_that_is_gone_is_found():
    assert "0.35x is listed" in problems("page", f"With search: {ACCURACY}.", [ENTRY])[0]
    assert "no such text" in problems("page", "Nothing.", [ENTRY])[0]


def test_code_and_links_hold_no_figures():
    assert problems("page", "`5 ms` and [this](10%)\n\n```sh\n5 ms\n```\n", []) == []


def test_the_page_of_reconstruction_is_made_from_the_stored_rows():
    stored = read_result("reconstruction.json")["rows"]
    assert RECONSTRUCTION.read_text(encoding="utf-8") == reconstruction_page(stored)
