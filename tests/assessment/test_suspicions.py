"""When the original's accuracy is suspicious: compared with what its checkpoint states."""

import numpy as np
import pytest

from catro_deploy.assessment.suspicions import Terms, look_at
from catro_deploy.data.base import UNKNOWN

TERMS = Terms("validation images", "[data]", "[model]", "RGB", "checkpoint", "Rename {first} and {second}.")
# 70 of 100 images of either class are right.
LABELS = np.repeat([0, 1], 100)
RIGHT = np.tile(np.arange(100) < 70, 2)
LOGITS = 3 * np.eye(2, dtype=np.float32)[np.where(RIGHT, LABELS, 1 - LABELS)]


@pytest.mark.parametrize(
    ("stated", "classes", "words"),
    [
        (None, None, ""),
        (0.73, None, ""),
        (0.9, None, "far below the 90.00% that its checkpoint states."),
        (0.9, 43, ""),
        (1.0, 1000, "far below the 100.00% that its checkpoint states for all 1,000 classes."),
    ],
)
def test_an_accuracy_stated_for_more_classes_is_compared_with_more_tolerance(stated, classes, words):
    look = look_at(LOGITS, LABELS, ["stop", "yield"], (3, 32, 32), TERMS, lambda _: "", stated, classes)
    assert look.accuracy == 0.7
    assert bool(look.warnings) == bool(words)
    assert words in "".join(look.warnings)


@pytest.mark.parametrize("labels", [LABELS, np.full(200, UNKNOWN)])
def test_a_network_that_returns_probabilities_is_suspicious(labels):
    odds = np.exp(LOGITS)
    softmax, sigmoid = odds / odds.sum(1, keepdims=True), odds / (1 + odds)
    for outputs, count in ((softmax, 1), (sigmoid, 1), (np.log(softmax), 0), (LOGITS, 0)):
        look = look_at(outputs, labels, ["stop", "yield"], (3, 32, 32), TERMS, lambda _: "")
        assert sum("probabilities, not logits" in warning for warning in look.warnings) == count
