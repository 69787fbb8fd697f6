import pytest

from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.unchecked import unchecked_words
from tests.report.made import make_estimate, make_finetune, make_plan, make_report


@pytest.mark.parametrize(
    ("plan", "max_drop", "expected"),
    [
        (
            make_estimate(),
            0.5,
            "its accuracy there, its latency (0.480x of the original's: estimate, not measured); max_drop, 0.5 points, "
            "was not applied.",
        ),
        (make_plan(target="jetson-orin"), None, "its accuracy there, its latency (not known)."),
    ],
)
def test_what_was_not_checked_is_listed(plan, max_drop, expected):
    words = unchecked_words(plan, max_drop, can_be_added=False)
    assert words.startswith(
        "NOT CHECKED on jetson-orin, which cannot be reached from here: that the network runs there"
    )
    assert words.endswith(expected)


def test_the_way_to_check_is_named_where_there_is_one():
    words = unchecked_words(make_estimate(), None, can_be_added=True)
    assert "catro-deploy device add NAME --ssh USER@HOST --target jetson-orin" in words
    assert "catro-deploy bundle" in words


def test_the_report_says_it_first_and_compares_with_the_original_by_pytorch():
    finetune, unchecked = make_finetune(original_validation_accuracy=0.995), "NOT CHECKED on jetson-orin: all"
    report = make_report(make_estimate(), finetune=finetune, unchecked=unchecked)
    assert report.warnings[0] == unchecked
    text = to_markdown(report)
    assert "| Accuracy, validation images, by PyTorch | 99.50% | 99.00% | -0.50 points |" in text
    assert "validation accuracy 99.50% -> 99.00% after fine-tuning" in text
    assert unchecked in text
    assert "original 99.50%" in to_html(report)
