"""What the reports say about fine-tuning, the rates tried before it, and no fine-tuning at all."""

import re

from catro_deploy.report.finetuning import finetuning_words, probe_words
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from tests.report.made import (
    PROBE,
    make_bench,
    make_estimate,
    make_finetune,
    make_plan,
    make_report,
    make_untrained,
    make_verify,
)
from tests.report.pages import Page

NO_TRAINING = "No training took place: the weights are those after pruning, validation accuracy 41.00%."


def reports(finetune):
    report = make_report(make_plan(), make_verify(), make_bench(), finetune=finetune)
    return to_markdown(report), to_html(report)


def test_a_training_is_described_in_a_sentence():
    assert finetuning_words(make_finetune(1)).startswith(
        "1 epoch over 9,000 training images on cpu in 6 s: validation accuracy"
    )
    assert finetuning_words(make_finetune(2)).startswith("2 epochs over")


def test_rates_that_were_tried_are_shown_with_their_losses():
    words = probe_words(make_finetune(probe=PROBE))
    assert words == (
        "Learning rates tried first, for 50 steps each: 0.0005 (loss 0.25), 0.0015 (loss 0.125), 0.0045 (loss not "
        "finite), on training images held out from them. Chosen: 0.0015."
    )
    for text in reports(make_finetune(probe=PROBE)):
        assert words in text


def test_without_a_probe_nothing_is_reported():
    assert probe_words(make_finetune()) == ""


def test_no_training_is_one_sentence_without_a_chart():
    markdown, html = reports(make_untrained())
    assert markdown.count("No training took place") == html.count("No training took place") == 1
    assert f"## Fine-tuning\n\n{NO_TRAINING}\n" in markdown
    assert NO_TRAINING in html
    assert not re.search("epochs? over|Training loss", markdown + html)
    parsed = Page(html)
    assert len(parsed.ids) == len(set(parsed.ids))


def test_an_accuracy_without_training_is_not_called_one_after_it():
    report = make_report(make_estimate(), finetune=make_untrained())
    assert report.verdict.endswith("validation accuracy 41.00% without fine-tuning")
    assert "without fine-tuning" in to_html(report)
    assert "after fine-tuning" not in to_html(report)
