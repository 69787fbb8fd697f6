"""What the report says about few images, and about a fine-tuning that was discarded."""

from dataclasses import replace

import pytest

from catro_deploy.cli.results import RESULTS
from catro_deploy.records import Choice, Score
from catro_deploy.report.cards import cards
from catro_deploy.report.few import few_image_warnings
from catro_deploy.report.finetuning import finetuning_words
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from tests.report.made import (
    make_agreement,
    make_bench,
    make_estimate,
    make_finetune,
    make_plan,
    make_report,
    make_verify,
)

CHANGE = {"agreement_with_original": make_agreement(accuracy_change_ci95=(-9.5, 3.25))}
SCORES = Score(0.9, 0.92, 0.25)
DISCARDED = {
    "choice": Choice("pruned", 45, SCORES, replace(SCORES, accuracy=0.7)),
    "validation_images": 45,
    "validation_accuracy": 0.9,
    "baseline_validation_accuracy": 0.9,
}


def report(verify=None, finetune=None):
    return make_report(make_plan(), verify or make_verify(**CHANGE), make_bench(), finetune=finetune or make_finetune())


def card_lines(content):
    return {line for card in cards(content) for line in card.lines}


def test_accuracies_and_their_change_have_intervals_everywhere():
    """Wilson's interval for 99.12% of 5,000 images is 98.82% to 99.34%."""
    content = report()
    assert "(-0.32 points, 95% CI -9.50 to +3.25)" in content.verdict
    assert {"95% CI −9.50 to +3.25", "(95% CI 98.82% to 99.34%)"} <= card_lines(content)
    row = "| Accuracy, 95% CI | 99.19% to 99.61% | 98.82% to 99.34% | -9.50 to +3.25 |"
    assert row in to_markdown(content)
    assert "98.82% to 99.34%" in to_html(content)


def test_an_accuracy_on_validation_images_has_its_interval():
    """9 of 10 images: 59.6% to 98.2%."""
    finetune = make_finetune(validation_accuracy=0.9, validation_images=10)
    content = make_report(make_estimate(), finetune=finetune)
    assert "validation accuracy 90.00% (95% CI 59.58% to 98.21%) after fine-tuning" in content.verdict
    assert "95% CI 59.58% to 98.21%" in card_lines(content)
    assert (
        "validation accuracy 41.00% -> 90.00% (95% CI 59.58% to 98.21%)" in RESULTS["finetune"].show(finetune, None)[0]
    )


@pytest.mark.parametrize(
    ("images", "max_drop", "warned"),
    [(45, None, True), (99, None, True), (100, None, False), (380, 1.0, True), (381, 1.0, False)],
)
def test_too_few_test_images_are_warned_of(images, max_drop, warned):
    found = few_image_warnings(make_verify(test_images=images, max_drop=max_drop))
    assert bool(found) == warned
    if images == 45:
        assert "45 test images cannot show a small loss: one image is 2.2 points" in found[0]


def test_without_labels_training_is_reported_by_agreement():
    before, after = Score(None, 0.9, 0.02), Score(None, 0.95, 0.01)
    finetune = make_finetune(
        epochs=1,
        validation_accuracy=None,
        baseline_validation_accuracy=None,
        choice=Choice("finetuned", 45, before, after),
    )
    expected = "agreement with the original on validation images 90.00% -> 95.00%"
    assert finetuning_words(finetune).startswith("1 epoch over ")
    assert finetuning_words(finetune).endswith(f"{expected}.")
    (line,) = RESULTS["finetune"].show(finetune, None)
    assert line.startswith("Fine-tuned 1 epoch in ")
    assert line.endswith(expected)


def test_a_fine_tuning_that_was_discarded_is_reported():
    finetune = make_finetune(**DISCARDED)
    words = "Fine-tuning did not improve the network on 45 validation images (accuracy 90.00% -> 70.00%, agreement"
    content = report(finetune=finetune)
    assert any(warning.startswith(words) for warning in content.warnings)
    assert "validation accuracy 90.00% -> 70.00%. Fine-tuning did not" in to_markdown(content).replace("\\", "")
    assert words.replace("->", "→") in to_html(content)
    assert RESULTS["finetune"].show(finetune, None)[1].startswith(words)
    equal = make_finetune(**DISCARDED | {"choice": Choice("pruned", 45, SCORES, replace(SCORES, mean_kl_nats=0.9))})
    unharmed = report(finetune=equal)  # described with the fine-tuning, but not a warning
    assert not any(warning.startswith("Fine-tuning did not") for warning in unharmed.warnings)
    assert "Fine-tuning did not improve" in to_markdown(unharmed)
    unmeasured = make_report(make_estimate(), finetune=finetune)
    assert unmeasured.verdict.endswith("without fine-tuning")
    assert "without fine-tuning" in card_lines(unmeasured)
