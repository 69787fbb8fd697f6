"""Suggestions for misspelt names."""

from catro_deploy.suggestions import did_you_mean, similar

KNOWN = ["learning_rate", "epochs", "epsilon"]


def test_the_nearest_name_is_suggested():
    assert did_you_mean("epoch", KNOWN) == "Did you mean epochs?"
    assert did_you_mean("epoch", KNOWN, form="train.{}") == "Did you mean train.epochs?"


def test_several_are_joined():
    assert did_you_mean("eps", ["eps1", "eps2"], most=2) == "Did you mean eps1 or eps2?"


def test_without_a_similar_name_the_other_hint_is_given():
    assert did_you_mean("zzz", KNOWN) == ""
    assert did_you_mean("zzz", KNOWN, otherwise="List them.") == "List them."


def test_the_required_similarity_can_be_chosen():
    # difflib: ratio = 2 * 4 matching characters / (4 + 13)
    assert similar("rate", KNOWN) == []
    assert similar("rate", KNOWN, alike=8 / 17 - 0.01) == ["learning_rate"]
